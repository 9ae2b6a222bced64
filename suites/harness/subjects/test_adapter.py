"""What the adapter makes of logits is what the model of this repository makes of them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.subjects.adapter import Adapter, Outputs, at_tokens, nll_of, observation_of
from harness.subjects.protocol import Unsupported
from harness.subjects.v4model_one_rank import build
from suites.harness import fakes
from suites.harness.subjects import toy
from v4model import Pack, PackLayout

TOKENS = ("all/5p3.33.17+64/s1", "csa/1.2.3/s2", "all,num_nextn_predict_layers=0,compress_ratios=0:4:16:4/9/s3")


@pytest.mark.parametrize("token", TOKENS)
def test_nll_sums_counts_and_losses_are_the_models_own(token: str) -> None:
    case = Case.from_token(token)
    subject, pack = build(case.v4config(), torch.float64, case.seed), case.pack(fakes.corpus())
    expected = subject.observe(pack)
    routers = [name for name in expected.sums if name.startswith("balance ")]
    outputs = Outputs(
        logits=[depth.values for depth in expected.depths],
        balance={name.removeprefix("balance "): expected.sums[name] for name in routers},
        balance_counts={name.removeprefix("balance "): expected.counts[name] for name in routers},
        kl=expected.sums["kl"],
    )
    got = observation_of(outputs, pack, config=case.v4config())
    for one, two in zip(got.depths, expected.depths, strict=True):
        torch.testing.assert_close(one.nll, two.nll, rtol=1e-12, atol=1e-12)
        assert torch.equal(one.valid, two.valid)
    assert got.sums.keys() == expected.sums.keys()
    assert got.losses.keys() == expected.losses.keys()
    for name in expected.sums:
        torch.testing.assert_close(got.sums[name], expected.sums[name], rtol=1e-12, atol=1e-12)
        assert got.counts[name] == expected.counts[name]
    for name in expected.losses:
        torch.testing.assert_close(got.losses[name], expected.losses[name], rtol=1e-12, atol=1e-12)


def pack_of(*lengths: int, total: int | None = None) -> Pack:
    """Ids 0, 1, 2, ... in samples of these lengths."""
    layout = PackLayout.from_lengths(lengths, total=total)
    return Pack(torch.arange(layout.total), layout=layout)


def test_where_no_label_is_nothing_of_a_row_comes_through() -> None:
    pack = pack_of(2, 1, total=5)
    logits = torch.full((5, 8), torch.nan)
    logits[0] = 0.0
    logits.requires_grad_()
    nll = nll_of(logits, pack, depth=0)
    assert nll.tolist() == [pytest.approx(torch.log(torch.tensor(8.0)).item()), 0, 0, 0, 0]
    (grad,) = torch.autograd.grad(nll.sum(), logits)
    assert not grad[1:].any()


def test_rows_of_real_tokens_go_to_their_places() -> None:
    layout = PackLayout.from_lengths([2, 1], total=6, slots=[3, 2])
    rows = torch.tensor([[1.0], [2.0], [3.0]])
    assert at_tokens(rows, layout)[:, 0].tolist() == [1, 2, 0, 3, 0, 0]


def test_own_losses_take_the_place_of_those_made_here() -> None:
    case = Case.from_token("all/5.9/s1")
    config = case.v4config()
    pack = case.pack(fakes.corpus())
    logits = [torch.zeros(14, config.vocab_size)] * 3
    own = torch.tensor(7.0)
    seen = observation_of(Outputs(logits=logits, losses={"main": own}), pack, config=config)
    assert seen.losses["main"] is own
    assert "mtp1" in seen.losses
    with pytest.raises(Unsupported, match="no 'loss'"):
        seen.losses["loss"]  # balance and KL are in the configuration, and not given


def test_depths_that_are_missing_are_refused() -> None:
    case = Case.from_token("all/5/s1")
    with pytest.raises(Unsupported, match="logits of 1 depths, the configuration has 3"):
        observation_of(Outputs(logits=[torch.zeros(5, 512)]), case.pack(fakes.corpus()), config=case.v4config())


@pytest.mark.parametrize(
    ("declared", "token", "words"),
    [
        ({"packing": "one at a time"}, "all/5.9/s1", "packs of several samples: one at a time"),
        ({"padding": "none"}, "all/5+9/s1", "padding: none"),
        ({"interior padding": "tail only"}, "all/5p2.9/s1", "padding between samples: tail only"),
    ],
)
def test_a_pack_that_is_declared_unsupported_is_refused(declared: Mapping[str, str], token: str, words: str) -> None:
    class Declaring(toy.Toy):
        unsupported = declared

    case = Case.from_token(token)
    subject: Adapter = Declaring(case.v4config(), torch.float64, 0)
    with pytest.raises(Unsupported, match=words):
        subject.observe(case.pack(fakes.corpus()))
    other: Tensor = subject.observe(Case.from_token("all/5/s1").pack(fakes.corpus())).depths[0].values
    assert other.shape == (5, 512)


def test_embeddings_that_are_declared_unsupported_are_refused() -> None:
    class Declaring(toy.Toy):
        unsupported: Mapping[str, str] = {"embeddings": "ids only"}

    case = Case.from_token("all/5/s1")
    subject, pack = Declaring(case.v4config(), torch.float64, 0), case.pack(fakes.corpus())
    with pytest.raises(Unsupported, match="embeddings from outside: ids only"):
        subject.observe(pack, embeddings=torch.zeros(5, toy.WIDTH))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: (out.logits,), "forward gave tuple; expected Outputs"),
        (lambda out: replace(out, logits=[None] * 3), "logits of the trunk: got NoneType; expected a tensor of torch"),
        (lambda out: replace(out, logits=[x[:-1] for x in out.logits]),
         r"logits of the trunk: got shape \[13, 512\]; expected \[14, 512\]"),
        (lambda out: replace(out, nll=[torch.zeros(14), torch.zeros(14, 1), torch.zeros(14)]),
         r"nll of MTP depth 1: got shape \[14, 1\]; expected \[14\]"),
        (lambda out: replace(out, losses={"lm_loss": torch.tensor(1.0)}),
         "got losses called lm_loss; expected some of loss, main, mtp1, mtp2, balance, kl"),
    ],
)  # fmt: skip
def test_outputs_of_another_form_are_one_sentence(change: Callable[[Outputs], Any], said: str) -> None:
    case = Case.from_token("all/5.9/s1")
    outputs = Outputs(logits=[torch.zeros(14, case.v4config().vocab_size)] * 3)
    with pytest.raises((TypeError, ValueError), match=said):
        observation_of(change(outputs), case.pack(fakes.corpus()), config=case.v4config())
