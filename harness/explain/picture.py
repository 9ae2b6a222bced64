"""An explanation as a picture: the pack with its cuts, what each sample depends on, and the same token by token."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure

from harness.errors import UsageError
from harness.explain.panels import draw_samples, draw_tokens
from harness.explain.strip import draw_pack

if TYPE_CHECKING:
    from harness.case import Case
    from harness.explain.explanation import Explanation

FORMATS = (".svg", ".png")

_CHARACTERS = 165
"""About as many characters of the heading as the picture is wide."""


def draw(explanation: Explanation, path: Path) -> None:
    """Write the picture, SVG or PNG by the file's name.

    Raises:
        UsageError: another kind of file, or one that cannot be written.
    """
    check_format(path)
    # The same picture has the same bytes, and its text can be found and read aloud.
    with rc_context({"svg.hashsalt": "harness explain", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10}):
        figure = Figure(figsize=(12, 8), layout="constrained")
        figure.suptitle(_heading(explanation), x=0.01, ha="left", fontsize=10)
        axes = figure.subplot_mosaic([["pack", "pack"], ["samples", "tokens"]], height_ratios=(2, 5))
        draw_pack(axes["pack"], explanation)
        draw_samples(axes["samples"], explanation)
        draw_tokens(axes["tokens"], explanation)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=120, metadata=metadata)
        except OSError as error:
            raise UsageError(got=f"{error.strerror}", expected="a file to write to", where=str(path)) from error


def picture_of(case: Case, *, fault: str | None) -> Path:
    """Where the picture of a case lies unless another place is given: the same file for the same case."""
    named = f"{case.token()} {fault or ''}"
    return Path("reports", f"explain-{hashlib.sha256(named.encode()).hexdigest()[:12]}.svg")


def check_format(path: Path) -> None:
    """Raises UsageError for a file that is no SVG or PNG by its name."""
    if path.suffix not in FORMATS:
        raise UsageError(got=path.name, expected=f"a name that ends in {' or '.join(FORMATS)}", where="--output")


def _heading(explanation: Explanation) -> str:
    name, verdict = explanation.verdicts[-1]
    told = [f"{explanation.case.token()}: {explanation.summary}"]
    if verdict.witness is not None:
        told.append(verdict.witness.sentence().removeprefix(f"{name}: "))
    # A dot or a slash of a token is no place to break at, so a long one is cut.
    return "\n".join(line for text in told for line in textwrap.wrap(text, _CHARACTERS))
