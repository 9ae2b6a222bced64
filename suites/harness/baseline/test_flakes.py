"""An entry of the list of flakes has a reason, an issue and an end."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from harness.baseline.flakes import Flake, read_flakes
from harness.errors import BaselineError


def test_entries_are_read(tmp_path: Path) -> None:
    file = tmp_path / "flakes.txt"
    file.write_text("# id, reason, issue, expiry\n\nt.py::a[1 2]\traces\t#7\t2026-12-31\n", encoding="utf-8")
    entry = Flake(id="t.py::a[1 2]", reason="races", issue="#7", expires=date(2026, 12, 31))
    assert read_flakes(file) == {"t.py::a[1 2]": entry}
    assert read_flakes(tmp_path / "absent.txt") == {}


@pytest.mark.parametrize(
    "line",
    [
        "t.py::a",
        "t.py::a\traces\t2026-12-31",
        "t.py::a\t\t#7\t2026-12-31",
        "t.py::a\traces\t\t2026-12-31",
        "t.py::a\traces\t#7\t",
        "t.py::a\traces\t#7\tsoon",
        "t.py::a\traces\t#7\t2026-13-01",
    ],
)
def test_an_entry_without_reason_issue_or_end_is_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "flakes.txt"
    file.write_text(f"# header\n{line}\n", encoding="utf-8")
    with pytest.raises(BaselineError, match=r"flakes\.txt, line 2"):
        read_flakes(file)
