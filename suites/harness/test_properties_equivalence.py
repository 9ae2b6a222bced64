"""packed_equals_alone and order_and_offset_change_nothing, on a healthy fake model and on one with a defect."""

from __future__ import annotations

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.properties.equivalence import ALONE, ORDER
from harness.subjects.alone import Alone
from harness.subjects.protocol import Observation
from harness.tolerance import REORDERED_F64
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.harness.fake_subject import with_defects
from v4model import Pack, PackLayout

LENGTHS = (9, 5, 14, 1)
PADDED = (12, 5, 14, 3)


def check(
    name: str,
    *defects: str,
    lengths: tuple[int, ...] = LENGTHS,
    padded: bool = False,
    seed: int = 3,
    dtype: str = "float64",
) -> Verdict:
    slots = PADDED if padded else lengths
    case = Case(config="csa", lengths=lengths, slots=slots, total=sum(slots) + 4 * padded, seed=seed, dtype=dtype)
    subject = with_defects(*defects)(case.v4config(), case.torch_dtype(), case.seed)
    return decide(find_property(name), lambda *_: subject, case, fakes.corpus(), fault=None)


def test_boundaries_that_are_kept_by_the_number_of_tokens_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(config="csa", lengths=LENGTHS, total=sum(LENGTHS), seed=3)
    subject = with_defects()(case.v4config(), case.torch_dtype(), case.seed)
    kept: dict[int, PackLayout] = {}
    observe = subject.observe

    def observe_as_first_of_its_size(pack: Pack, *, embeddings: torch.Tensor | None = None) -> Observation:
        first = kept.setdefault(pack.layout.total, pack.layout)
        return observe(Pack(pack.tokens, layout=first, supervised=pack.supervised), embeddings=embeddings)

    monkeypatch.setattr(subject, "observe", observe_as_first_of_its_size)
    verdict = decide(find_property(ORDER), lambda *_: subject, case, fakes.corpus(), fault=None)
    assert verdict.outcome is Outcome.VIOLATED


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [ALONE, ORDER])
def test_healthy_model_holds_within_rounding(name: str, *, padded: bool) -> None:
    for seed in range(4):
        verdict = check(name, padded=padded, seed=seed)
        assert verdict.outcome is Outcome.HOLDS
        assert verdict.bound == REORDERED_F64
        assert verdict.error is not None
        # Sums of a few dozen terms in another order: far below the bound, and not one bit equal either.
        assert 0.0 < verdict.error < 1e-12


@pytest.mark.parametrize("name", [ALONE, ORDER])
@pytest.mark.parametrize(
    "defect",
    [
        "local window clamped at the stream's start",
        "windows cut on the stream",
        "positions counted along the stream",
        "table read by the neighbour's id",
        "gradient added to the neighbour",
        "MTP embedding rolled over the sample's end",
        "label rolled over the sample's end",
        "padding not zeroed",
    ],
)
def test_what_depends_on_the_pack_is_seen(name: str, defect: str) -> None:
    for seed in range(3):
        verdict = check(name, defect, padded=defect == "padding not zeroed", seed=seed)
        assert verdict.outcome is Outcome.VIOLATED, seed
        assert verdict.witness is not None
        assert verdict.witness.magnitude > 1e-4


def test_the_first_sample_keeps_its_positions_and_is_never_the_witness() -> None:
    witness = check(ALONE, "positions counted along the stream").witness
    assert witness is not None
    assert witness.query is not None
    assert witness.query.sample > 0
    assert witness.got != witness.expected
    assert witness.what == "logits differ from the samples alone"


def test_a_wrong_gradient_names_the_embedding_or_the_parameter() -> None:
    found = [check(ALONE, "gradient added to the neighbour", seed=seed).witness for seed in range(8)]
    assert {witness.branch for witness in found if witness} == {"gradient"}
    layers = {witness.layer for witness in found if witness}
    # Half of the cases differentiate embeddings, the others the tables behind them.
    assert "embeddings" in layers
    assert layers & {"embedding", "by_id", "pool", "key", "join"}


def test_a_wrong_count_names_its_term() -> None:
    witness = check(ALONE, "padding in the count", padded=True).witness
    assert witness is not None
    assert witness.what == "the count of main differs from the samples alone"
    assert (witness.magnitude, witness.bound) == (9.0, 0.0)
    assert (witness.got, witness.expected) == ("38.0", "29.0")


def test_order_names_the_place_in_the_case() -> None:
    witness = check(ORDER, "local window clamped at the stream's start").witness
    assert witness is not None
    assert witness.query is not None
    starts = (0, 9, 14, 28)
    assert witness.query.token == starts[witness.query.sample] + witness.query.position


def test_one_sample_without_padding_is_already_alone_but_can_be_offset() -> None:
    assert check(ALONE, lengths=(12,)).outcome is Outcome.VACUOUS
    assert check(ORDER, lengths=(12,)).outcome is Outcome.HOLDS
    assert check(ORDER, "positions counted along the stream", lengths=(12,)).outcome is Outcome.VIOLATED


@pytest.mark.parametrize("name", [ALONE, ORDER])
def test_other_dtypes_are_undecided(name: str) -> None:
    verdict = check(name, dtype="float32")
    assert verdict.outcome is Outcome.UNDECIDED
    assert "float32" in verdict.reason


def test_alone_puts_rows_in_place_and_adds_sums() -> None:
    subject = with_defects()(Case(config="csa", lengths=(1,), total=1, seed=0).v4config(), torch.float64, 0)
    layout = PackLayout.from_lengths([3, 2], total=8, slots=[4, 2])
    pack = Pack(torch.tensor([5, 6, 7, 0, 8, 9, 0, 0]), layout=layout)
    alone = Alone(subject).observe(pack)
    one = subject.observe(Pack(pack.tokens[:3], layout=PackLayout.single(3)))
    two = subject.observe(Pack(pack.tokens[4:6], layout=PackLayout.single(2)))
    for depth in range(3):
        values = alone.depths[depth].values
        assert torch.equal(values[:3], one.depths[depth].values)
        assert torch.equal(values[4:6], two.depths[depth].values)
        assert not values[3].any()
        assert not values[6:].any()
        assert alone.depths[depth].valid.tolist() == [
            *(position + depth < 3 for position in range(3)),
            False,
            *(position + depth < 2 for position in range(2)),
            False,
            False,
        ]
    assert torch.equal(alone.sums["main"], one.sums["main"] + two.sums["main"])
    assert alone.counts["main"] == one.counts["main"] + two.counts["main"] == 3
