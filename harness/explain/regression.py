"""A case as a regression test, ready to commit."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.explain.explanation import Explanation

_WIDTH = 120

_TEMPLATE = '''"""{title}

{story}
"""

from __future__ import annotations

{imports}

CASE = Case.from_token({token})


def test_{name}() -> None:
    prop, subject = find_property({property}), find_subject({subject})
    verdict = decide(prop, subject, CASE, load_corpus({data}), fault=None)
    told = verdict.reason if verdict.witness is None else verdict.witness.sentence()
    assert verdict.outcome is Outcome.HOLDS, told
'''


def check_new(path: Path) -> None:
    """Raises UsageError for a file that exists or that pytest would not collect."""
    if re.fullmatch(r"test_\w+\.py", path.name) is None:
        raise UsageError(got=path.name, expected="a file named test_<what went wrong>.py", where="--test")
    if path.exists():
        raise UsageError(got="a file that exists", expected="a new one", where=str(path))


def write_test(path: Path, explanation: Explanation, *, subject: str, data: Path | None, fault: str | None) -> None:
    """Write a pytest file that replays the case and asserts that the violated property, or else the last one, holds.

    subject, data, fault: as they were given on the command line; a fault is told of, and not planted in the test.

    Raises:
        UsageError: as `check_new`, or a file that cannot be written.
    """
    check_new(path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_text(explanation, subject=subject, data=data, fault=fault))
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a file to write to", where=str(path)) from error


def _text(explanation: Explanation, *, subject: str, data: Path | None, fault: str | None) -> str:
    property_name = explanation.verdicts[-1][0]
    imports = ["from harness.case import Case", "from harness.catalogue import find_property, find_subject"]
    imports += ["from harness.corpus import load_corpus", "from harness.engine import decide"]
    imports += ["from harness.verdict import Outcome"]
    if data is not None:
        imports[:0] = ["from pathlib import Path", ""]
    return _TEMPLATE.format(
        title=f"{property_name} holds on one case.",
        story=_story(explanation, fault=fault),
        imports="\n".join(imports),
        token=_quoted(explanation.case.token()),
        name=re.sub(r"\W+", "_", property_name.rpartition(":")[2]).lower(),
        property=_quoted(property_name),
        subject=_quoted(subject),
        data="None" if data is None else f"Path({_quoted(str(data))})",
    )


def _story(explanation: Explanation, *, fault: str | None) -> str:
    planted = "" if fault is None else f" with fault {fault} planted"
    text = f"It held{planted} when this was written."
    if explanation.witness is not None:
        text = f"It was violated once{planted}: {explanation.witness.sentence()}."
    # A sentence may hold names of the caller's own; in a docstring a backslash would be an escape.
    return textwrap.fill(text.replace("\\", "/").replace('"', "'"), _WIDTH, break_on_hyphens=False)


def _quoted(text: str) -> str:
    """As ruff writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
