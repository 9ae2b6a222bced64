"""Initial values: by name and seed alone, so that every share of a model starts as the whole one does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from v4model import V4Model, presets
from v4model.layers.share import Share

CONFIG = presets.tiny()
SHARES = [
    Share(stage=0, stages=2),
    Share(stage=1, stages=2),
    Share(stage=2, stages=4),
    Share(expert_rank=1, expert_ranks=2),
    Share(expert_rank=5, expert_ranks=8),
    Share(stage=3, stages=4, expert_rank=2, expert_ranks=4),
]


def whole_and_part(share: Share) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Each tensor of a share, by name, with its place in the whole model's."""
    whole, part = V4Model(CONFIG, seed=3), V4Model(CONFIG, seed=3, share=share)
    held = share.experts(CONFIG.n_routed_experts)
    found = []
    for name, tensor in part.state_dict().items():
        expected = whole.state_dict()[name]
        found.append((name, tensor, expected[held.start : held.stop] if ".mlp.experts." in name else expected))
    return found


@pytest.mark.parametrize("share", SHARES, ids=str)
def test_a_share_starts_as_its_part_of_the_whole_does(share: Share) -> None:
    for name, tensor, expected in whole_and_part(share):
        assert torch.equal(tensor, expected), name


def test_no_two_matrices_start_alike() -> None:
    model = V4Model(CONFIG)
    matrices = {name: p for name, p in model.named_parameters() if p.ndim > 1 and p.any()}
    rows = torch.stack([p.detach().flatten()[:16] for p in matrices.values()])
    experts = [p.detach() for name, p in matrices.items() if ".mlp.experts." in name]
    rows = torch.cat([rows, *(p.flatten(1)[1:, :16] for p in experts)])
    assert len(torch.unique(rows, dim=0)) == len(rows), "each tensor and each expert has numbers of its own"


def test_every_tensor_that_is_drawn_depends_on_the_seed() -> None:
    one, other = (V4Model(CONFIG, seed=seed).state_dict() for seed in (0, 1))
    drawn = {name for name, tensor in one.items() if tensor.unique().numel() > 1}
    assert len(drawn) > 100
    assert [name for name in sorted(drawn) if torch.equal(one[name], other[name])] == []


def test_depths_and_experts_more_leave_the_others_as_they_are() -> None:
    more = replace(CONFIG, num_nextn_predict_layers=3, compress_ratios=(0, 4, 16, 4, 0, 4, 0))
    small, large = V4Model(CONFIG).state_dict(), V4Model(more).state_dict()
    assert all(torch.equal(large[name], tensor) for name, tensor in small.items())


@pytest.mark.parametrize("std", [0.02, 0.5])
def test_matrices_have_the_configured_deviation(std: float) -> None:
    model = V4Model(replace(CONFIG, initializer_range=std), dtype=torch.float64)
    for name in ("trunk.embed_tokens.weight", "lm_head.weight", "trunk.layers.1.mlp.experts.gate_up_proj"):
        values = model.get_parameter(name).detach()
        # The deviation of n numbers is known to about 1 / sqrt(2 n); five times that.
        assert abs(float(values.std()) / std - 1) < 5 / (2 * values.numel()) ** 0.5, name


def test_norms_and_scales_are_1_and_sinks_biases_and_bases_0() -> None:
    for name, tensor in V4Model(CONFIG).state_dict().items():
        leaf = name.rsplit(".", 1)[-1]
        if name.endswith("norm.weight") or leaf in ("scale", "hc_scale"):
            assert (tensor == 1).all(), name
        elif leaf in ("sinks", "position_bias", "base", "hc_base", "e_score_correction_bias"):
            assert not tensor.any(), name
        else:
            assert tensor.unique().numel() > 1, name
