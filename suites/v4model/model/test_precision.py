"""float32 and bfloat16: what stays wide, and how far the losses and gradients may move."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from suites.v4model.support import BF16, FP32, LAYOUTS, gradients, random_pack, stirred
from v4model import V4Model, presets

CONFIG = presets.tiny()
# Roundings to the model's dtype on the longest path through one block: norm, q_a, its norm, q_b, its norm, rotation,
# attention output, its rotation, o_a, o_b, expand; collapse, norm, up projection, product, down projection, weighted
# sum, shared expert's sum, expand; collapse before it all. Trunk and two depths make six blocks in a row. A float32
# model rounds in its islands too: some 20 steps (sigmoids, softmax, 3 Sinkhorn rounds) in each of a block's two mHC.
ROUNDINGS = {torch.bfloat16: 6 * 20, torch.float32: 6 * (20 + 2 * 20)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_islands_stay_in_float32_or_better(dtype: torch.dtype) -> None:
    model = V4Model(CONFIG, dtype=dtype)
    island = re.compile(r"norm\.|_hc\.|hc_head\.|\.gate\.weight|\.sinks$|position_bias$|e_score_correction_bias$")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    kinds = set()
    for name, tensor in model.state_dict().items():
        if name.endswith("tid2eid"):
            assert tensor.dtype == torch.int64
            continue
        found = island.search(name)
        assert tensor.dtype == (wide if found else dtype), name
        kinds.add(found.group() if found else "model")
    assert len(kinds) == 8, "each island occurs"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["slots", "no window", "padding only"])
def test_losses_and_gradients_are_finite(dtype: torch.dtype, name: str) -> None:
    model = stirred(CONFIG, dtype=dtype)
    out = model(random_pack(LAYOUTS[name]), logits=True)
    assert out.logits.dtype == out.hidden.dtype == dtype
    assert out.loss.dtype == out.token_nll.dtype == torch.float32
    out.loss.backward()
    for loss in (out.loss, out.main_loss, *out.mtp_losses, out.balance_loss, out.kl_loss):
        assert loss.isfinite()
    assert all(grad.isfinite().all() for grad in gradients(model).values())
    assert not out.hidden[~LAYOUTS[name].real].any()


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, FP32), (torch.bfloat16, BF16)])
def test_close_to_float64(dtype: torch.dtype, rounding: float) -> None:
    """To first order a rounding moves a value by `rounding` of itself, and n of random sign add up as sqrt(n).

    Choices are discrete and would jump, so there are none: all experts are used and all visible windows picked. Both
    models start from the same values, those of the narrow one. Gradients pass every rounding twice. A parameter of few
    elements is a sum over tokens that cancels, so for single parameters the bound is the worst case, n and not sqrt(n);
    in bfloat16 that is no bound, and half of the gradient is (its direction stays within 30 degrees).
    """
    config = replace(CONFIG, num_experts_per_tok=CONFIG.n_routed_experts, index_topk=64)
    low = stirred(config, dtype=dtype)
    exact = V4Model(config, dtype=torch.float64)
    exact.load_state_dict(low.state_dict())
    pack = random_pack(LAYOUTS["slots"])
    results = []
    for model in (exact, low):
        out = model(pack, logits=True)
        out.loss.backward()
        results.append((out, {name: grad.double() for name, grad in gradients(model).items()}))
    (expected, expected_grads), (found, grads) = results
    roundings = ROUNDINGS[dtype]
    for a, b in zip([found, *found.mtp], [expected, *expected.mtp], strict=True):
        error = float((a.logits.double() - b.logits).detach().norm() / b.logits.detach().norm())
        assert error < roundings**0.5 * rounding
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=roundings**0.5 * rounding)
    floor = 1e-3 * max(float(grad.norm()) for grad in expected_grads.values())
    errors = {
        name: float((grads[name] - grad).norm()) / max(float(grad.norm()), floor)
        for name, grad in expected_grads.items()
    }
    assert sorted(errors.values())[len(errors) // 2] < (2 * roundings) ** 0.5 * rounding
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] < min(2 * roundings * rounding, 0.5), worst
