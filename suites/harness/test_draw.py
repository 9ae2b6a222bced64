"""The draw: the same cases for a seed in any process, whatever else it has imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.case import Case
from harness.engine.draw import Draw
from harness.engine.row import Unit
from harness.strategies import cases

_TOKENS = """
import sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2:]:
    import numbers_of_mine
from suites.harness.test_draw import tokens
print(*tokens(), sep="\\n")
"""


def tokens() -> list[str]:
    found: list[Case] = []
    assert Draw(Unit("all", ()), cases("all"), layouts=60, seed=3).run(found.append) is None
    return [case.token() for case in found]


def test_a_local_module_with_numbers_changes_no_draw(tmp_path: Path) -> None:
    (tmp_path / "numbers_of_mine.py").write_text(f"NUMBERS = {list(range(100))}\n", encoding="utf-8")
    command = [sys.executable, "-c", _TOKENS, str(tmp_path)]
    plain, other = (
        subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout.split()
        for more in ([], ["with"])
    )
    assert plain == other == tokens()
    assert len(set(plain)) == 60
