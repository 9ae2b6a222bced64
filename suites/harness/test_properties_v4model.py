"""The real model as a subject: what it gives, how lively its weights are, and that every property holds for it."""

from __future__ import annotations

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.properties import accounting, equivalence, index_loss, isolation, padding, reach
from harness.subjects.v4model_one_rank import build
from harness.verdict import Outcome
from suites.harness import fakes

CASE = Case(config="all", lengths=(9, 5, 18, 1), slots=(11, 5, 18, 1), total=40, seed=5)
NAMES = [
    isolation.SAMPLE,
    isolation.FUTURE,
    equivalence.ALONE,
    equivalence.ORDER,
    padding.NAME,
    accounting.NAME,
    reach.NAME,
    index_loss.NAME,
]


@pytest.mark.parametrize("name", NAMES)
def test_every_property_holds(name: str) -> None:
    subject = build(CASE.v4config(), CASE.torch_dtype(), CASE.seed)
    verdict = find_property(name).check(subject, CASE, fakes.corpus())
    assert verdict.outcome is Outcome.HOLDS, verdict.witness and verdict.witness.sentence()


def test_observation_has_every_sum_with_its_count_and_every_loss() -> None:
    subject = build(CASE.v4config(), CASE.torch_dtype(), CASE.seed)
    observation = subject.observe(CASE.pack(fakes.corpus()))
    assert len(observation.depths) == 3
    routers = [f"balance {name}" for name in ("trunk.layers.1", "trunk.layers.2", "trunk.layers.3")]
    routers += ["balance mtp.0.block", "balance mtp.1.block"]
    assert set(observation.sums) == {"main", "mtp1", "mtp2", "kl", *routers}
    assert set(observation.sums) <= set(observation.counts)
    assert set(observation.losses) == {"loss", "main", "mtp1", "mtp2", "balance", "kl"}
    # 33 real tokens; at depth k each sample has k fewer valid positions, none below 0.
    counts = observation.counts
    assert [counts[name] for name in ("kl", *routers)] == [33, 33, 33, 33, 29, 26]
    selections = [n for name, n in counts.items() if name.startswith("selections mtp.1.block expert")]
    assert (len(selections), sum(selections)) == (8, 2 * 26)


def test_no_parameter_is_quiet() -> None:
    subject = build(CASE.v4config(), CASE.torch_dtype(), CASE.seed)
    for name, parameter in subject.parameters().items():
        assert parameter.requires_grad, name
        assert parameter.detach().ne(0).all(), name
        assert parameter.numel() == 1 or parameter.detach().std() > 0.01, name
    for name, buffer in subject.model.named_buffers():
        assert buffer.double().std() > 0.01, name


def test_weights_follow_from_the_seed() -> None:
    config = CASE.v4config()
    one, again, other = (build(config, torch.float64, seed).parameters() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_embeddings_are_detached_and_zero_at_padding() -> None:
    subject = build(CASE.v4config(), CASE.torch_dtype(), CASE.seed)
    pack = CASE.pack(fakes.corpus())
    embeddings = subject.embeddings(pack)
    assert not embeddings.requires_grad
    assert not embeddings[~pack.layout.real].any()
    assert embeddings[pack.layout.real].ne(0).all()
