"""Where a leak entered: branch, layer and row of the real model's faults, on one rank and on several."""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_fault, find_property
from harness.engine import decide
from harness.properties.equivalence import ALONE, ORDER
from harness.properties.isolation import FUTURE, SAMPLE
from harness.properties.locate import comparisons_are_kept
from harness.properties.oracle import NAME as READING
from harness.properties.padding import NAME as PADDING
from harness.properties.parity import CP
from harness.subjects.v4model_one_rank import build
from harness.witness import Witness
from suites.harness import fakes
from v4model.layers.router import HashRouter, Router, Routing

LAYOUT = "9.22p3.17+56/s11"


def witness_of(fault: str, name: str, config: str) -> Witness:
    case, planted = Case.from_token(f"{config}/{LAYOUT}"), find_fault(fault)
    witness = decide(find_property(name), build, case, fakes.corpus(), fault=planted).witness
    assert witness is not None
    return witness


# Ranks of 4 own 14 tokens each: cuts at 14, 28 and 42. The first window of a sample starts where it does, at 9 and 34.
@pytest.mark.parametrize(
    ("fault", "name", "config", "branch", "layer", "reading"),
    [
        ("A1", SAMPLE, "dense", "local", "mtp.0.self_attn", "reads token 8 (sample 0, position 8)"),
        ("A1", ALONE, "csa", "local", "mtp.0.self_attn", "reads token"),
        ("B1", SAMPLE, "all", "local", "layers.0.self_attn", "reads token 8 (sample 0, position 8)"),
        ("B1", SAMPLE, "hca", "local", "layers.0.self_attn", "reads token 8 (sample 0, position 8)"),
        ("C1", SAMPLE, "csa", "pool", "layers.0.self_attn", "reads the pooled row of tokens 8 to 11 (sample 0 and"),
        ("C2", ORDER, "csa", "pool", "layers.0.self_attn", "from position"),
        ("C3", SAMPLE, "all", "pool", "layers.1.self_attn", "row of tokens 9 to 12 (sample 1, window 0)"),
        ("C7", FUTURE, "csa", "pool", "layers.0.self_attn", "window"),
        ("C7", FUTURE, "hca", "pool", "layers.0.self_attn", "window"),
        ("C8", SAMPLE, "csa", "picks", "layers.0.self_attn", "(sample 0, window"),
        ("C16", FUTURE, "csa", "pool", "layers.0.self_attn", "from position"),
        ("C16", FUTURE, "hca", "pool", "layers.0.self_attn", "from position"),
        ("D1", SAMPLE, "dense", "shift", "mtp.0.e_proj", "reads token 9 (sample 1, position 0)"),
        ("D1", ALONE, "dense", "shift", "mtp.0.e_proj", "reads token 9 (sample 1, position 0)"),
        ("D4", PADDING, "dense", "shift", "mtp.0.e_proj", "reads token"),
        ("E2", CP, "dense@4", "local", "layers.0.self_attn", "does not read token 13 (sample 1, position 4)"),
        ("E2b", CP, "csa@4", "local", "layers.0.self_attn", "does not read token"),
        ("E3", CP, "csa@4", "pool", "layers.0.self_attn", "of tokens 17 to 20 (sample 1, window 2), which differs"),
        ("E5", CP, "hca@4", "local", "layers.0.self_attn", "does not read token 27 (sample 1, position 18)"),
        ("E8", CP, "csa@4", "picks", "layers.0.self_attn", "pooled row"),
        ("C4", READING, "csa", "pool", "layers.0.self_attn", "window 0), which differs"),
        ("D8", READING, "dense", "shift", "mtp.1.e_proj", "reads token"),
        ("D5", CP, "dense@4", "shift", "mtp.0.e_proj", "does not read token 42 (sample 2, position 8)"),
    ],
)  # fmt: skip
def test_faults_are_located(fault: str, name: str, config: str, branch: str, layer: str, reading: str) -> None:
    witness = witness_of(fault, name, config)
    assert (witness.branch, witness.layer) == (branch, layer)
    assert witness.at is not None
    assert reading in str(witness.row)
    assert f"the {branch} branch of {layer}" in witness.sentence()


@pytest.mark.parametrize(("fault", "layer"), [("B7", "layers.0.self_attn"), ("F6", "layers.0.attn_hc")])
def test_wrong_arithmetic_has_a_layer_and_no_branch(fault: str, layer: str) -> None:
    witness = witness_of(fault, READING, "dense")
    assert (witness.branch, witness.layer, witness.row) == ("unknown", layer, None)
    assert witness.at is not None
    assert f"first differs in {layer}" in witness.sentence()


def test_another_label_is_the_loss() -> None:
    witness = witness_of("D12", SAMPLE, "dense")
    assert (witness.branch, witness.layer, witness.at) == ("loss", None, None)


def test_gradients_that_do_not_come_back_have_no_place_in_the_forward_pass() -> None:
    witness = witness_of("E14", CP, "dense@4")
    assert (witness.branch, witness.at) == ("gradient", None)
    assert "on rank" in witness.what


def test_experts_chosen_by_the_neighbour_are_the_router() -> None:
    healthy = HashRouter.forward

    def by_the_token_before(self: Router, x: Tensor, *, tokens: Tensor) -> Routing:
        assert isinstance(self, HashRouter)
        return healthy(self, x, tokens=tokens.roll(1))

    case = Case.from_token(f"all/{LAYOUT}")
    with mock.patch.object(HashRouter, "forward", by_the_token_before):
        witness = decide(find_property(SAMPLE), build, case, fakes.corpus(), fault=None).witness
    assert witness is not None
    assert (witness.branch, witness.layer) == ("router", "layers.0.mlp.gate")
    assert witness.at is not None
    assert (witness.query, witness.at.token) == (witness.at, 9)


def test_without_a_recorder_nothing_is_known() -> None:
    case = Case.from_token(f"all/{LAYOUT}")
    witness = decide(find_property(SAMPLE), fakes.leaking, case, fakes.corpus(), fault=None).witness
    assert witness is not None
    assert (witness.layer, witness.at, witness.row) == (None, None, None)


def test_comparisons_are_kept_for_who_asks() -> None:
    witness_of("B1", SAMPLE, "dense")
    with comparisons_are_kept() as kept:
        assert kept == []
        witness = witness_of("B1", SAMPLE, "dense")
    assert len(kept) == 1
    assert next(kept[0].wrong_names()) == "layers.0.self_attn"
    assert witness.at is not None
    assert bool(kept[0].wrong("layers.0.self_attn")[witness.at.token])


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_embeddings_given_are_recorded_like_those_looked_up() -> None:
    case = Case.from_token("all/6.5+12/s1")
    subject = build(case.v4config(), case.torch_dtype(), case.seed)
    pack = case.pack(fakes.corpus())
    assert same(subject.layer_outputs(pack), subject.layer_outputs(pack, embeddings=subject.embeddings(pack)))
