"""Cases on context-parallel ranks, with cuts put where they hurt on purpose, mixed with cuts where they fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from harness.case import Case
from harness.kinds import config_from_text
from harness.strategies.lengths import DEFAULT_SIZE, PackSize
from harness.strategies.packs import cases

_AIMS = ("anywhere", "sample end", "sample end", "short shards", "padding-only rank", "one long sample")


@st.composite
def ranked_cases(
    draw: st.DrawFn,
    kind: str,
    *,
    ranks: int,
    processes: bool = False,
    size: PackSize = DEFAULT_SIZE,
    natural: Sequence[int] = (),
    dtypes: Sequence[str] = ("float64",),
) -> Case:
    """Cases of one named configuration on `ranks` ranks.

    Equal shards put cut i at i * shard tokens, so the tail padding decides where all cuts fall. A third of the cases
    aims one at a sample's end, give or take one token; others at shards shorter than the sliding window, at a rank of
    padding only, or at one sample over all ranks.
    """
    case = draw(cases(kind, size=size, natural=natural, dtypes=dtypes))
    aim = draw(st.sampled_from(_AIMS)) if ranks > 1 else "anywhere"
    if aim == "one long sample":
        case = replace(case, lengths=(sum(case.lengths),), slots=None)
    elif aim == "short shards":
        most = ranks * (config_from_text(case.config).sliding_window - 1)
        lengths = tuple(1 + length % max(most // len(case.lengths), 1) for length in case.lengths)
        case = replace(case, lengths=lengths, slots=None, total=sum(lengths) + draw(st.integers(0, ranks)))
    used = sum(case.lengths if case.slots is None else case.slots)
    if aim == "padding-only rank":
        shard = -(-used // (ranks - 1))
        case = replace(case, total=max(shard * ranks - draw(st.integers(0, ranks - 1)), used))
    elif aim == "sample end":
        shards = sorted(_shards_that_cut_at_an_end(case, ranks=ranks, used=used))
        assume(shards)
        case = replace(case, total=ranks * draw(st.sampled_from(shards)))
    assume(case.total <= 2 * size.max_tokens)
    return replace(case, ranks=ranks, processes=processes)


def _shards_that_cut_at_an_end(case: Case, *, ranks: int, used: int) -> set[int]:
    """Shard sizes with a cut on a sample's end, or one token before or behind it."""
    layout = case.layout()
    wanted = {
        start + length + off for start, length in zip(layout.starts, layout.lengths, strict=True) for off in (-1, 0, 1)
    }
    shards = {cut // number for cut in wanted for number in range(1, ranks) if cut > 0 and cut % number == 0}
    return {shard for shard in shards if shard * ranks >= used}
