"""query_sees_only_its_sample and query_sees_no_future, on a healthy fake model and on one with a defect planted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.properties.isolation import FUTURE, SAMPLE, some_samples
from harness.subjects.protocol import Observation
from harness.verdict import Outcome, Verdict
from harness.witness import Place, Witness
from suites.harness import fakes
from suites.harness.fake_subject import WINDOW, with_defects
from v4model import Pack

LENGTHS = (9, 5, 14, 1)
PADDED = (12, 5, 14, 3)


def check(name: str, *defects: str, lengths: tuple[int, ...] = LENGTHS, padded: bool = False, seed: int = 3) -> Verdict:
    slots = PADDED if padded else lengths
    case = Case(config="csa", lengths=lengths, slots=slots, total=sum(slots) + 4 * padded, seed=seed)
    subject = with_defects(*defects)(case.v4config(), case.torch_dtype(), case.seed)
    return find_property(name).check(subject, case, fakes.corpus())


def witness_of(verdict: Verdict, name: str) -> Witness:
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness is not None
    assert verdict.witness.property == name
    assert verdict.witness.bound == 0.0
    assert verdict.witness.magnitude > 0.0
    return verdict.witness


def places(witness: Witness) -> tuple[Place, Place]:
    assert witness.query is not None
    assert witness.source is not None
    return witness.query, witness.source


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [SAMPLE, FUTURE])
def test_healthy_model_holds_to_the_bit(name: str, *, padded: bool) -> None:
    for seed in range(4):
        verdict = check(name, padded=padded, seed=seed)
        assert (verdict.outcome, verdict.error, verdict.bound) == (Outcome.HOLDS, 0.0, 0.0)


@pytest.mark.parametrize("name", [SAMPLE, FUTURE])
def test_a_model_that_gives_something_else_each_time_is_not_said_to_leak(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = Case(config="csa", lengths=LENGTHS, total=sum(LENGTHS), seed=3)
    subject = with_defects()(case.v4config(), case.torch_dtype(), case.seed)
    observe = subject.observe

    def observe_with_noise(pack: Pack, *, embeddings: torch.Tensor | None = None) -> Observation:
        seen = observe(pack, embeddings=embeddings)
        depths = [replace(depth, values=depth.values + 1e-13 * torch.rand_like(depth.values)) for depth in seen.depths]
        return replace(seen, depths=tuple(depths))

    monkeypatch.setattr(subject, "observe", observe_with_noise)
    verdict = decide(find_property(name), lambda *_: subject, case, fakes.corpus(), fault=None)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "the logits of two runs of the same pack differ, by " in verdict.reason


def test_one_sample_has_no_neighbour() -> None:
    verdict = check(SAMPLE, lengths=(20,))
    assert verdict.outcome is Outcome.VACUOUS
    assert "neighbour" in verdict.reason


def test_samples_of_one_token_have_no_future() -> None:
    assert check(FUTURE, lengths=(1, 1, 1)).outcome is Outcome.VACUOUS


@pytest.mark.parametrize("name", [SAMPLE, FUTURE])
def test_experts_without_fixed_shapes_are_undecided(name: str) -> None:
    case = Case(config="csa,fixed_shape_experts=false", lengths=(4, 4), total=8, seed=1)
    subject = with_defects()(case.v4config(), case.torch_dtype(), case.seed)
    assert find_property(name).check(subject, case, fakes.corpus()).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("seed", range(4))
def test_window_over_the_start_is_seen_with_the_nearest_query_and_source(seed: int) -> None:
    witness = witness_of(check(SAMPLE, "local window clamped at the stream's start", seed=seed), SAMPLE)
    query, source = places(witness)
    assert witness.depth == 0
    assert source.sample == query.sample - 1
    assert query.position == 0
    assert 0 < query.token - source.token < WINDOW
    assert "other token ids" in witness.what


def test_mixed_windows_are_seen() -> None:
    query, source = places(witness_of(check(SAMPLE, "windows cut on the stream"), SAMPLE))
    assert source.sample < query.sample


def test_embedding_rolled_over_the_end_is_named_with_its_depth() -> None:
    witness = witness_of(check(SAMPLE, "MTP embedding rolled over the sample's end"), SAMPLE)
    query, source = places(witness)
    assert witness.depth == 1
    assert source == Place(query.sample + 1, 0, query.token + 1)


def test_a_table_read_by_the_neighbours_id_is_seen_though_it_has_no_gradient() -> None:
    query, source = places(witness_of(check(SAMPLE, "table read by the neighbour's id"), SAMPLE))
    assert query.token == source.token + 1
    assert query.position == 0


def test_a_label_of_the_neighbour_is_seen_in_the_nll() -> None:
    witness = witness_of(check(SAMPLE, "label rolled over the sample's end"), SAMPLE)
    query, source = places(witness)
    assert witness.what == "nll moved under other token ids"
    assert source == Place(query.sample + 1, 0, query.token + 1)


def test_what_is_only_multiplied_by_zero_is_seen_by_nan() -> None:
    verdicts = [check(SAMPLE, "absent rows clamped and multiplied by 0", seed=seed) for seed in range(6)]
    found = [witness_of(verdict, SAMPLE) for verdict in verdicts if verdict.outcome is Outcome.VIOLATED]
    # Rows are clamped to the pack's first token: its sample must be the poisoned one, as in most of the draws.
    assert len(found) >= 3
    for witness in found:
        assert witness.what == "logits moved under NaN embeddings"
        assert places(witness)[1] == Place(0, 0, 0)


def test_a_gradient_that_crosses_is_seen_where_no_value_moves() -> None:
    for seed in range(4):
        witness = witness_of(check(SAMPLE, "gradient added to the neighbour", seed=seed), SAMPLE)
        query, source = places(witness)
        assert "gradient" in witness.what
        assert source == Place(query.sample - 1, LENGTHS[query.sample - 1] - 1, query.token - 1)


def test_window_in_progress_is_the_future_of_its_own_sample_and_no_neighbour() -> None:
    for seed in range(4):
        witness = witness_of(check(FUTURE, "window in progress visible", seed=seed), FUTURE)
        query, source = places(witness)
        assert query.sample == source.sample
        assert 0 < source.position - query.position < 4
        assert check(SAMPLE, "window in progress visible", seed=seed).outcome is Outcome.HOLDS


def test_the_future_of_another_sample_is_not_this_property() -> None:
    for seed in range(4):
        assert check(FUTURE, "MTP embedding rolled over the sample's end", seed=seed).outcome is Outcome.HOLDS


def test_verdicts_are_the_same_again() -> None:
    defect = "local window clamped at the stream's start"
    assert check(SAMPLE, defect) == check(SAMPLE, defect)


def test_some_samples_are_never_none_and_never_all_and_part_every_pair() -> None:
    for count in (2, 3, 5):
        drawn = [set(some_samples(count, random.Random(seed))) for seed in range(60)]
        assert all(0 < len(group) < count for group in drawn)
        for one in range(count):
            for other in range(count):
                assert one == other or any(one in group and other not in group for group in drawn)


def test_bfloat16_bits_are_compared_too() -> None:
    case = Case(config="csa", lengths=(6, 7), total=13, seed=2, dtype="bfloat16")
    for defects, outcome in (((), Outcome.HOLDS), (("windows cut on the stream",), Outcome.VIOLATED)):
        subject = with_defects(*defects)(case.v4config(), torch.bfloat16, case.seed)
        assert find_property(SAMPLE).check(subject, case, fakes.corpus()).outcome is outcome
