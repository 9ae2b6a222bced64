"""Strata of layouts and sizes on one rank, and the pairs of them that interact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from harness.case import DTYPES
from harness.kinds import config_from_text
from v4model.config import CSA_RATIO

if TYPE_CHECKING:
    from harness.case import Case
    from v4model import Pack, V4Config


@dataclass(frozen=True)
class _Facts:
    """What strata are told by: a case, its configuration, and which tokens of its pack are supervised."""

    case: Case
    config: V4Config
    pack: Pack

    @cached_property
    def samples(self) -> list[tuple[int, int]]:
        """Start and length of each sample."""
        layout = self.pack.layout
        return list(zip(layout.starts, layout.lengths, strict=True))

    @cached_property
    def labels(self) -> list[int]:
        """Supervised labels of each sample: supervised tokens but the first."""
        marked = self.pack.supervised.tolist()
        return [sum(marked[start + 1 : start + length]) for start, length in self.samples]

    @property
    def csa(self) -> int | None:
        return CSA_RATIO if CSA_RATIO in self.config.ratios else None

    @property
    def hca(self) -> int | None:
        return next((ratio for ratio in self.config.ratios if ratio != CSA_RATIO), None)

    @property
    def tail(self) -> int:
        start, length = self.samples[-1]
        return self.case.total - start - length

    @property
    def has_interior_padding(self) -> bool:
        ends = [start + length for start, length in self.samples]
        return any(end < start for end, (start, _) in zip(ends, self.samples[1:], strict=False))

    def any_sample(self, test: Callable[[int, int], bool]) -> bool:
        return any(test(start, length) for start, length in self.samples)

    def changed(self, field: str) -> bool:
        return bool(getattr(self.config, field) != getattr(config_from_text(self.case.kind), field))


_Test: TypeAlias = Callable[[_Facts], bool]


def _of_ratio(name: str, ratio: Callable[[_Facts], int | None]) -> dict[str, _Test]:
    """Strata of one kind of compressed layer; none of them has a case without such a layer."""

    def some(test: Callable[[int, int, int], bool]) -> _Test:
        def met(facts: _Facts) -> bool:
            r = ratio(facts)
            return r is not None and facts.any_sample(lambda start, length: test(start, length, r))

        return met

    def whole(test: Callable[[list[int]], bool]) -> _Test:
        def met(facts: _Facts) -> bool:
            r = ratio(facts)
            return r is not None and test([length // r for _, length in facts.samples])

        return met

    return {
        f"length a multiple of the {name} ratio": some(lambda _, length, r: length % r == 0),
        f"length one above a multiple of the {name} ratio": some(lambda _, length, r: length % r == 1),
        f"length one below a multiple of the {name} ratio": some(lambda _, length, r: length % r == r - 1),
        f"start off the {name} grid": some(lambda start, _, r: start % r != 0),
        f"sample without a complete {name} window": some(lambda _, length, r: length < r),
        f"sample with one {name} window": some(lambda _, length, r: length // r == 1),
        f"sample with several {name} windows": some(lambda _, length, r: length // r > 1),
        f"sample without a {name} window before one with": whole(
            lambda windows: any(not now and later for now, later in pairwise(windows))
        ),
        f"start off the {name} grid with whole windows": some(lambda start, n, r: start % r != 0 and n % r == 0 < n),
        f"start off the {name} grid with a part of a window": some(lambda start, n, r: start % r != 0 and n % r != 0),
        f"pack without a complete {name} window": whole(lambda windows: not any(windows)),
    }


def _more_rows_than_picks(facts: _Facts) -> bool:
    ratio, topk = facts.csa, facts.config.index_topk
    return ratio is not None and facts.any_sample(lambda _, length: length // ratio > topk)


def _changed(field: str) -> _Test:
    return lambda facts: facts.changed(field)


_SIZES = {
    "sliding window": "sliding_window",
    "top-k": "index_topk",
    "index heads": "index_n_heads",
    "residual streams": "hc_mult",
    "experts": "n_routed_experts",
    "experts per token": "num_experts_per_tok",
    "hash layers": "num_hash_layers",
    "block of queries": "attention_block_tokens",
    "MTP depths": "num_nextn_predict_layers",
}

_TESTS: Mapping[str, _Test] = {
    "one sample": lambda facts: len(facts.samples) == 1,
    "two samples": lambda facts: len(facts.samples) == 2,
    "three samples and more": lambda facts: len(facts.samples) > 2,
    "sample of one token": lambda facts: facts.any_sample(lambda _, length: length == 1),
    "samples of one token next to each other": lambda facts: any(
        one == two == 1 for (_, one), (_, two) in pairwise(facts.samples)
    ),
    "sample shorter than the sliding window": lambda facts: facts.any_sample(
        lambda _, length: length < facts.config.sliding_window
    ),
    "sample as long as the sliding window": lambda facts: facts.any_sample(
        lambda _, length: length == facts.config.sliding_window
    ),
    "sample one token longer than the sliding window": lambda facts: facts.any_sample(
        lambda _, length: length == facts.config.sliding_window + 1
    ),
    "sample much longer than the sliding window": lambda facts: facts.any_sample(
        lambda _, length: length > 2 * facts.config.sliding_window
    ),
    "no padding": lambda facts: not facts.tail and not facts.has_interior_padding,
    "padding at the tail alone": lambda facts: facts.tail > 0 and not facts.has_interior_padding,
    "interior padding alone": lambda facts: not facts.tail and facts.has_interior_padding,
    "padding inside and at the tail": lambda facts: facts.tail > 0 and facts.has_interior_padding,
    "sample without a label": lambda facts: 0 in facts.labels,
    "sample with every label": lambda facts: any(
        labels == length - 1 > 0 for labels, (_, length) in zip(facts.labels, facts.samples, strict=True)
    ),
    "sample no longer than the MTP depths": lambda facts: facts.any_sample(
        lambda _, length: length <= facts.config.num_nextn_predict_layers
    ),
    **_of_ratio("CSA", lambda facts: facts.csa),
    **_of_ratio("HCA", lambda facts: facts.hca),
    "no more CSA rows than top-k": lambda facts: facts.csa is not None and not _more_rows_than_picks(facts),
    "more CSA rows than top-k": _more_rows_than_picks,
    "more CSA rows than top-k of one index head": lambda facts: (
        _more_rows_than_picks(facts) and facts.config.index_n_heads == 1
    ),
    "more CSA rows than top-k off the grid": lambda facts: (
        facts.csa is not None
        and facts.any_sample(lambda start, n: start % CSA_RATIO != 0 and n // CSA_RATIO > facts.config.index_topk)
    ),
    "interior padding beside several CSA windows": lambda facts: (
        facts.csa is not None
        and facts.has_interior_padding
        and facts.any_sample(lambda _, length: length // CSA_RATIO > 1)
    ),
    "padding at the tail behind a whole window": lambda facts: (
        facts.csa is not None and facts.tail > 0 and facts.samples[-1][1] % CSA_RATIO == 0
    ),
    "several MTP depths": lambda facts: facts.config.num_nextn_predict_layers > 1,
    "no MTP": lambda facts: facts.config.num_nextn_predict_layers == 0,
    **{f"changed {name}": _changed(field) for name, field in _SIZES.items()},
    "changed HCA ratio": lambda facts: facts.changed("ratios"),
}

LAYOUT_STRATA = tuple(_TESTS)
"""What a run over all kinds has to meet."""

DTYPE_STRATA = {dtype: f"dtype {dtype}" for dtype in DTYPES}
"""Strata by dtype; a run has to meet those that one of its properties can decide in."""


def layout_strata(case: Case, pack: Pack) -> frozenset[str]:
    """The strata of a case on one rank."""
    facts = _Facts(case, case.v4config(), pack)
    return frozenset((DTYPE_STRATA[case.dtype], *(name for name, test in _TESTS.items() if test(facts))))
