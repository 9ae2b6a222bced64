"""What updated weights, norms and copies are held to, on steps made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harness.subjects.gpus.compare import Comparison, adamw, norm_of, weight_error
from harness.subjects.gpus.step import Step, settings_of
from v4model import presets
from v4model.parallel.groups import Mesh

SETTINGS = settings_of(presets.tiny(), Mesh(), dtype=torch.float32, packs=4)


def step(dtype: torch.dtype = torch.float32) -> Step:
    """Weights as torch's AdamW leaves them; gradients of all sizes, rounding and zero among them."""
    source = torch.Generator().manual_seed(5)
    before = {
        "matrix": torch.randn(40, 30, generator=source, dtype=torch.float64).to(dtype),
        "gain": torch.ones(30, dtype=dtype),
    }
    gradients = {}
    for name, weight in before.items():
        sizes = 10.0 ** torch.randint(-30, 1, weight.shape, generator=source)
        gradients[name] = (torch.randn(weight.shape, generator=source) * sizes).to(dtype)
    gradients["matrix"][0] = 0
    norm = math.sqrt(sum(float(grad.double().square().sum()) for grad in gradients.values()))
    after = {}
    for name, weight in before.items():
        own = torch.nn.Parameter(weight.clone())
        own.grad = gradients[name] * (0.01 / norm)
        decay = SETTINGS.weight_decay if weight.ndim > 1 else 0.0
        betas = (SETTINGS.beta1, SETTINGS.beta2)
        torch.optim.AdamW([own], lr=1e-3, betas=betas, eps=SETTINGS.epsilon, weight_decay=decay).step()
        after[name] = own.detach()
    return Step(
        loss=1.0, nll=torch.ones(3), gradients=gradients, before=before, after=after, grad_norm=norm, disagreeing=(),
        sent_bytes=(0, 0), seconds=1.0,
    )  # fmt: skip


def test_the_formula_is_the_step_that_torch_takes() -> None:
    error = weight_error(step(), SETTINGS)
    print(f"largest error of float32 AdamW: {error:.2f} of the bound")
    assert 0.0 < error < 1.0
    assert norm_of(step()) == step().grad_norm


def test_a_gradient_of_rounding_size_is_a_whole_step() -> None:
    """Why updated weights of two runs are not compared with each other: the sign of 1e-7 is as large as that of 1."""
    tiny = torch.tensor([1e-4, -1e-4], dtype=torch.float64)
    moved = adamw(torch.zeros(2, dtype=torch.float64), tiny, settings=SETTINGS)
    assert moved.tolist() == pytest.approx([-1e-3, 1e-3], rel=1e-3)


@pytest.mark.parametrize(
    "defect",
    [
        lambda s: s.after["matrix"].__setitem__(3, s.before["matrix"][3]),  # a row that nobody updated
        lambda s: s.after["gain"].sub_(1e-3 * 0.1 * s.before["gain"]),  # decay of what has none
        lambda s: s.after["matrix"].__setitem__((5, 5), torch.nan),
        lambda s: s.before["matrix"].__setitem__(0, torch.nan),  # a row that no rank sent
        lambda s: s.after["matrix"].sub_(s.after["matrix"] - s.before["matrix"]),  # no step at all
    ],
    ids="row decay nan unsent none".split(),
)
def test_a_wrong_update_is_far_beyond_the_bound(defect: object) -> None:
    wrong = step()
    defect(wrong)  # type: ignore[operator]
    error = weight_error(wrong, SETTINGS)
    assert not error <= 10.0


def comparison(**changes: object) -> Comparison:
    healthy = Comparison(
        mesh="dp=1 pp=1 cp=2 ep=1", dtype="float32", tokens=10, samples=2, nll_one=1e-7, nll_several=2e-7,
        gradient_one=1e-6, gradient_several=1.9e-6, loss_difference=1e-8, weight_error=0.3, norm_error=1e-15,
        disagreeing=(), sent_cp_bytes=5, sent_ep_bytes=0, step_seconds=1.0,
    )  # fmt: skip
    return replace(healthy, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"nll_several": 2.1e-7},
        {"gradient_several": 2.1e-6},
        {"gradient_several": math.nan},
        {"weight_error": 1.1},
        {"weight_error": math.nan},
        {"norm_error": 1e-8},
        {"disagreeing": ("after of head",)},
    ],
    ids=str,
)
def test_one_thing_outside_its_bound_is_enough(changes: dict[str, object]) -> None:
    assert comparison().holds
    assert comparison().sentence().startswith("holds float32")
    assert not comparison(**changes).holds
    assert comparison(**changes).sentence().startswith("FAILS float32")
