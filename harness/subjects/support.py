"""What a subject may say that it does not support, what needs it, and how cases are drawn without it.

A factory or a subject declares `unsupported`, a mapping from an aspect to the reason, a clause:

    unsupported = {"mtp": "the model has no MTP", "float64": "its kernels are float32", "hc_mult!=4": "4 is built in"}

An aspect is a name of `ASPECTS`, or `field!=value` for a field of the configuration that must have that value (written
as in a case's token). The engine keeps cases clear of it where it can, answers UNDECIDED where a case needs it all the
same, and a run that kept clear of something is never a pass as a whole: that part is told, not decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from harness.case import DTYPES, Case
from harness.errors import UsageError
from harness.kinds import with_changes
from v4model import V4Config

if TYPE_CHECKING:
    from v4model import Pack

CSA_RATIO = 4
"""The compression ratio of layers with an indexer."""

_LONGEST_FOR_TIES = 64
"""Rows that an index_topk takes where a choice among equal scores must not come up: cases have fewer windows."""

_FIELD = re.compile(r"([a-z_]+)!=([A-Za-z0-9.:+-]+)")


@dataclass(frozen=True, kw_only=True)
class Aspect:
    """Something that a subject may lack.

    about: in words, for "does not support ...". needs: whether a case cannot be run without it. clear: the case made to
    need it no more, None where there is no such case; only called where `needs`.
    """

    about: str
    needs: Callable[[Case], bool] = lambda _: False
    clear: Callable[[Case], Case] | None = None


def _without_mtp(case: Case) -> Case:
    config = case.v4config()
    trunk = ":".join(map(str, config.compress_ratios[: config.num_hidden_layers]))
    return _changed(case, {"num_nextn_predict_layers": "0", "compress_ratios": trunk})


def _has_ties(case: Case) -> bool:
    config = case.v4config()
    return CSA_RATIO in config.ratios and config.index_topk < max(case.lengths) // 4


def _of_dtype(dtype: str) -> Aspect:
    return Aspect(about=dtype, needs=lambda case: case.dtype == dtype)


MTP = "mtp"
BALANCE = "balance"
KL = "kl"
PACKING = "packing"
PADDING = "padding"
INTERIOR_PADDING = "interior padding"
TIES = "ties"
RANKS = "ranks"
EMBEDDINGS = "embeddings"
PARAMETERS = "parameters"
FIXED_SHAPES = "fixed shapes"
WIDE = "float64 throughout"
NAN = "nan"
TERMS = "losses"

ASPECTS: Mapping[str, Aspect] = {
    MTP: Aspect(
        about="MTP depths", needs=lambda case: case.v4config().num_nextn_predict_layers > 0, clear=_without_mtp
    ),
    BALANCE: Aspect(
        about="the balance loss",
        needs=lambda case: case.v4config().balance_coef > 0,
        clear=lambda case: _changed(case, {"balance_coef": "0.0"}),
    ),
    KL: Aspect(
        about="the indexer's KL loss",
        needs=lambda case: case.v4config().index_kl_coef > 0,
        clear=lambda case: _changed(case, {"index_kl_coef": "0.0"}),
    ),
    PACKING: Aspect(
        about="packs of several samples",
        needs=lambda case: len(case.lengths) > 1,
        clear=lambda case: replace(case, lengths=case.lengths[:1], slots=None, total=case.lengths[0]),
    ),
    PADDING: Aspect(
        about="padding",
        needs=lambda case: case.total > sum(case.lengths),
        clear=lambda case: replace(case, slots=None, total=sum(case.lengths)),
    ),
    INTERIOR_PADDING: Aspect(
        about="padding between samples",
        needs=lambda case: case.slots is not None and case.slots[:-1] != case.lengths[:-1],
        clear=lambda case: replace(case, slots=None),
    ),
    TIES: Aspect(
        about="a rule for equal index scores",
        needs=_has_ties,
        clear=lambda case: _changed(case, {"index_topk": str(max(_LONGEST_FOR_TIES, max(case.lengths) // 4))}),
    ),
    RANKS: Aspect(about="context-parallel ranks", needs=lambda case: case.ranks is not None),
    **{dtype: _of_dtype(dtype) for dtype in DTYPES},
    # What no case shows: the subject raises when it is asked, as `Adapter` does by itself.
    EMBEDDINGS: Aspect(about="embeddings from outside"),
    PARAMETERS: Aspect(about="gradients of parameters"),
    TERMS: Aspect(about="losses of its own"),
    # Poison that comes through where it means nothing; large numbers stand in for it.
    NAN: Aspect(about="NaN at places that it masks"),
    # What widens a bound instead of leaving something out: see `harness.properties.bounds`.
    FIXED_SHAPES: Aspect(about="shapes that the routing of other tokens leaves alone"),
    WIDE: Aspect(about="float64 throughout"),
}


def widest_dtype(unsupported: Mapping[str, str]) -> str | None:
    """The first of `DTYPES` that is not declared unsupported, if any."""
    return next((name for name in DTYPES if name not in unsupported), None)


def unsupported_by(thing: object) -> Mapping[str, str]:
    """What a factory or a subject declares; raises UsageError for a declaration that cannot be read."""
    declared = getattr(thing, "unsupported", {})
    if not isinstance(declared, Mapping):
        raise _unreadable(thing, f"unsupported of type {type(declared).__name__}", "a mapping from aspect to reason")
    for name, reason in declared.items():
        if not isinstance(name, str) or not _is_known(name):
            known = f"one of {', '.join(ASPECTS)}, or field!=value of the configuration"
            raise _unreadable(thing, f"unsupported aspect {name!r}", known)
        if not isinstance(reason, str) or not reason.strip():
            raise _unreadable(thing, f"reason {reason!r} for {name!r}", "a clause that says why")
    return declared


def _is_known(name: str) -> bool:
    field = _FIELD.fullmatch(name)
    return name in ASPECTS if field is None else field.group(1) in {known.name for known in fields(V4Config)}


def versions_of(thing: object) -> Mapping[str, str]:
    """What a factory says of its own packages: versions by name, in an attribute `versions`, if it has one."""
    versions = getattr(thing, "versions", {})
    if not isinstance(versions, Mapping):
        raise _unreadable(thing, f"versions of type {type(versions).__name__}", "a mapping from package to version")
    return {str(name): str(version) for name, version in versions.items()}


def aspect_of(name: str) -> Aspect:
    """The aspect of a declared name."""
    if (parts := _FIELD.fullmatch(name)) is None:
        return ASPECTS[name]
    field, value = parts.groups()
    wanted = {field: value}
    return Aspect(
        about=f"{field} other than {value}",
        needs=lambda case: _changed(case, wanted).v4config() != case.v4config(),
        clear=lambda case: _changed(case, wanted),
    )


def kept_clear(case: Case, unsupported: Mapping[str, str]) -> Case:
    """The case with whatever the subject lacks left out, as far as a case can be."""
    for name in unsupported:
        aspect = aspect_of(name)
        if aspect.clear is not None and aspect.needs(case):
            case = aspect.clear(case)
    return case


def refusal(case: Case, unsupported: Mapping[str, str]) -> str | None:
    """Why a case cannot be run ("MTP depths: the model has none"), None if it needs nothing that is declared."""
    for name, reason in unsupported.items():
        if (aspect := aspect_of(name)).needs(case):
            return f"{aspect.about}: {reason}"
    return None


def left_out(unsupported: Mapping[str, str]) -> tuple[str, ...]:
    """What cases are kept clear of, each with the reason: it is not decided, so a run that leaves it out is no pass."""
    aspects = {name: aspect_of(name) for name in unsupported}
    return tuple(
        f"{aspect.about} ({unsupported[name]})"
        for name, aspect in aspects.items()
        if aspect.clear is not None or name in (*DTYPES, NAN)
    )


def refusal_of_pack(pack: Pack, unsupported: Mapping[str, str]) -> str | None:
    """As `refusal` for a pack that a property made, for the subject itself to raise."""
    layout = pack.layout
    ends = [start + length for start, length in zip(layout.starts, layout.lengths, strict=True)]
    needed = {
        PACKING: layout.num_samples > 1,
        PADDING: layout.total > layout.real_tokens,
        INTERIOR_PADDING: any(end != start for end, start in zip(ends, layout.starts[1:], strict=False)),
    }
    for key, is_needed in needed.items():
        if is_needed and key in unsupported:
            return f"{ASPECTS[key].about}: {unsupported[key]}"
    return None


def _changed(case: Case, changes: Mapping[str, str]) -> Case:
    return replace(case, config=with_changes(case.config, changes))


def _unreadable(thing: Any, got: str, expected: str) -> UsageError:
    name = getattr(thing, "name", None) or getattr(thing, "__qualname__", type(thing).__name__)
    return UsageError(got=got, expected=expected, where=f"subject {name}")
