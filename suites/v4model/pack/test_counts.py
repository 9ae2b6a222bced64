"""StepCounts: labels and router tokens of every depth, counted one position at a time."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import LAYOUTS, random_pack
from v4model.pack import Pack, PackLayout
from v4model.pack.counts import StepCounts, counts_of


def masked_pack(layout: PackLayout, *, seed: int = 0) -> Pack:
    """About half of the tokens count as labels, in the caller's mask also padding."""
    mask = torch.rand(layout.total, generator=torch.Generator().manual_seed(seed + 50)) < 0.5
    return random_pack(layout, seed=seed, supervised=mask)


def by_hand(pack: Pack, *, depths: int) -> StepCounts:
    """Position t of depth k is valid iff t + k < len; its label is t + k + 1, counted iff that token is supervised."""
    labels, tokens = [0] * (depths + 1), [0] * (depths + 1)
    for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
        for depth in range(depths + 1):
            for t in range(length):
                tokens[depth] += t + depth < length
                label = t + depth + 1
                labels[depth] += label < length and bool(pack.supervised[start + label])
    return StepCounts(tuple(labels), tuple(tokens))


@pytest.mark.parametrize("depths", [0, 1, 3])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_counts_follow_the_definition(layout: PackLayout, depths: int) -> None:
    pack = masked_pack(layout)
    assert counts_of([pack], depths=depths) == by_hand(pack, depths=depths)


def test_a_small_pack_in_numbers() -> None:
    # Lengths 4 and 2. Depth 1 of the first has labels at tokens 2 and 3, of the second none.
    pack = Pack.from_samples([[5, 6, 7, 8], [9, 9]], supervised=[[True, True, False, True], [True, True]], total=9)
    assert counts_of([pack], depths=2) == StepCounts(labels=(3, 1, 1), tokens=(6, 4, 2))


def test_the_mask_belongs_to_the_label() -> None:
    # The first token of a sample is nobody's label, whatever the mask says of it.
    pack = Pack.from_samples([[5, 6, 7]], supervised=[[True, False, False]])
    assert counts_of([pack], depths=1).labels == (0, 0)


def test_packs_of_a_step_add_up() -> None:
    packs = [masked_pack(layout, seed=seed) for seed, layout in enumerate(LAYOUTS.values())]
    total = counts_of(packs, depths=2)
    each = [counts_of([pack], depths=2) for pack in packs]
    assert total.labels == tuple(sum(counts.labels[depth] for counts in each) for depth in range(3))
    assert total.tokens == tuple(sum(counts.tokens[depth] for counts in each) for depth in range(3))
    assert each[0] + each[1] + each[2] + each[3] + each[4] + each[5] == total
    assert counts_of(iter(packs), depths=2) == total, "any iterable"


def test_no_pack_counts_nothing() -> None:
    assert counts_of([], depths=2) == StepCounts((0, 0, 0), (0, 0, 0))


def test_counts_of_other_depths_do_not_add() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        StepCounts((1, 2), (3, 4)) + StepCounts((1,), (3,))
