"""Named configurations, one a layer kind, and the text that names one with changes ("csa,index_topk=2")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.errors import CaseError

if TYPE_CHECKING:
    from v4model import V4Config

KINDS = ("all", "dense", "csa", "hca")
"""Every layer kind together, and each one alone, so that one leak does not hide another."""

# HCA alone gets a small ratio: packs of 60-200 tokens then hold several complete windows a sample.
_RATIO_ALONE = {"dense": 0, "csa": 4, "hca": 8}

# The released limit of 10 is out of reach of activations of unit size: whether experts clamp would not show.
_LIMIT = 1.0

_TEXT = re.compile(r"[a-z]+(,[a-z_]+=[A-Za-z0-9.:+-]+)*")


_ABOUT = {
    "all": "every layer kind and both routers in one model, MTP depth 2",
    "dense": "sliding-window layers alone, two in the trunk and two MTP blocks",
    "csa": "compressed layers with an indexer alone (ratio 4)",
    "hca": "heavily compressed layers alone (ratio 8)",
}


def describe(kind: str) -> str:
    """One line about a named configuration."""
    return _ABOUT[kind]


def kind_of(text: str) -> str:
    """The named configuration that a configuration text starts from."""
    return text.split(",", 1)[0]


def check_text(text: str) -> None:
    """Refuse a configuration text whose form or kind is wrong; raises CaseError. Needs no model code."""
    if not _TEXT.fullmatch(text):
        raise CaseError(
            got=f"configuration {text!r}", expected="KIND or KIND,field=value,field=value", where="the case's config"
        )
    if kind_of(text) not in KINDS:
        raise CaseError(got=f"kind {kind_of(text)!r}", expected=f"one of {', '.join(KINDS)}", where="the case's config")
    names = [change.split("=", 1)[0] for change in text.split(",")[1:]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CaseError(got=f"field {twice[0]} twice", expected="each field once", where=f"the case's config {text!r}")


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """The configuration text with these fields set, whatever it said of them; fields in the order of their names."""
    kind, *given = text.split(",")
    fields = {**dict(change.split("=", 1) for change in given), **changes}
    return ",".join((kind, *(f"{name}={value}" for name, value in sorted(fields.items()))))


def config_from_text(text: str) -> V4Config:
    """Build the configuration that a text names: `KIND` or `KIND,field=value,...`.

    Whole numbers, floats, `true`, `false` and `none` are written plainly, tuples with colons
    (`compress_ratios=0:4:16:4:0:4`). Raises CaseError for an unknown field, a value of the wrong type, or sizes that do
    not fit together.
    """
    from v4model import ConfigError
    from v4model.changes import with_changes

    check_text(text)
    changes = dict(change.split("=", 1) for change in text.split(",")[1:])
    try:
        return with_changes(_named(kind_of(text)), changes, where="")
    except ConfigError as error:
        raise CaseError(got=error.got, expected=error.expected, where=f"the case's config {text!r}") from error


def _named(kind: str) -> V4Config:
    from v4model import presets

    tiny = replace(presets.tiny(), swiglu_limit=_LIMIT)
    if kind == "all":
        return tiny
    # Two trunk layers (hash router first, learned router second) and two MTP blocks, every one of the same kind.
    return replace(
        tiny,
        num_hidden_layers=2,
        num_nextn_predict_layers=2,
        num_hash_layers=1,
        compress_ratios=(_RATIO_ALONE[kind],) * 4,
    )
