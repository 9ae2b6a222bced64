"""Indexer: its picks against a loop, its scale, and that only the divergence teaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from suites.v4model.support import leaf, randn, random_pack, relative_error, sees_window
from v4model import presets
from v4model.config import V4Config
from v4model.exchange import Ranks
from v4model.layers.context import Inputs, PackContext, context_of
from v4model.layers.indexer import Indexer, Picked
from v4model.ops.rope import rotate
from v4model.pack import PackLayout

CONFIG = presets.tiny()
HEADS, WIDTH, TOPK = CONFIG.index_n_heads, CONFIG.index_head_dim, CONFIG.index_topk
LAYOUT = PackLayout.from_lengths([6, 41, 2, 23], slots=[6, 44, 3, 23], total=80)


def context(layout: PackLayout = LAYOUT) -> PackContext:
    pack = random_pack(layout)
    return context_of(pack, config=CONFIG, ranks=Ranks.one(), dtype=torch.float64, device=torch.device("cpu"))


def indexer(config: V4Config = CONFIG) -> Indexer:
    made = Indexer(config, ratio=4, dtype=torch.float64)
    with torch.no_grad():
        for seed, parameter in enumerate(made.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=seed))
    return made


def inputs(tokens: int = LAYOUT.total) -> tuple[torch.Tensor, torch.Tensor]:
    return leaf(tokens, CONFIG.hidden_size, seed=20), leaf(tokens, CONFIG.q_lora_rank, seed=21)


def run(made: Indexer, x: torch.Tensor, latent: torch.Tensor, layout: PackLayout = LAYOUT) -> Picked:
    """On one rank, where nothing lies before the own tokens."""
    return made(Inputs(x, x, latent), context=context(layout), where="here")


def picked() -> tuple[Indexer, Picked, list[torch.Tensor]]:
    made, (x, latent) = indexer(), inputs()
    return made, run(made, x, latent), [x, latent]


def test_picks_and_scores_equal_the_loop() -> None:
    made, found, (x, latent) = picked()
    keys = made.compressor(x, context=context(), where="here")
    rotation = context().rotation(LAYOUT.total, compressed=True)
    q = rotate((latent @ made.q_b_proj.weight.T).unflatten(1, (HEADS, WIDTH)), rotation)
    gate = x @ made.weights_proj.weight.T * HEADS**-0.5 * WIDTH**-0.5
    seen = sees_window(LAYOUT, ratio=4)
    assert int(seen.sum(1).max()) > TOPK, "a choice is made"
    for t in range(LAYOUT.total):
        scores = {}
        for row in seen[t].nonzero()[:, 0].tolist():
            scores[row] = sum(float((gate[t, h] * torch.relu(q[t, h] @ keys[row])).detach()) for h in range(HEADS))
        best = sorted(scores, key=lambda row: (-scores[row], row))[:TOPK]
        assert found.picks[t].tolist() == best + [-1] * (TOPK - len(best))
        assert found.scores[t, : len(best)].tolist() == pytest.approx([scores[row] for row in best], rel=1e-11)
        assert (found.scores[t, len(best) :] == -torch.inf).all()


@pytest.mark.parametrize("block_tokens", [1, 7, 79, 1000])
def test_block_size_changes_no_pick(block_tokens: int) -> None:
    _, whole, (x, latent) = picked()
    blocks = run(indexer(replace(CONFIG, attention_block_tokens=block_tokens)), x, latent)
    assert torch.equal(blocks.picks, whole.picks)
    assert torch.equal(blocks.scores, whole.scores)


def test_picks_of_a_sample_are_those_of_it_alone() -> None:
    made, found, (x, latent) = picked()
    first_row = 0
    for start, length in zip(LAYOUT.starts, LAYOUT.lengths, strict=True):
        part = slice(start, start + length)
        alone = run(made, x[part], latent[part], PackLayout.single(length))
        own = torch.where(found.picks[part] >= 0, found.picks[part] - first_row, -1)
        assert torch.equal(own, alone.picks)
        if (visible := alone.picks >= 0).any():
            assert relative_error(found.scores[part][visible], alone.scores[visible]) < 1e-13
        first_row += length // 4


def test_closed_gates_pick_the_lowest_windows() -> None:
    made, (x, latent) = indexer(), inputs()
    with torch.no_grad():
        made.weights_proj.weight.zero_()  # every score is +0 or -0
    found = run(made, x, latent, PackLayout.single(80))
    assert found.picks[79].tolist() == list(range(TOPK))
    assert found.picks[9].tolist() == [0, 1, *[-1] * (TOPK - 2)]


def test_gradient_reaches_the_indexer_alone() -> None:
    made, found, (x, latent) = picked()
    finite = torch.where(found.picks >= 0, found.scores, 0)
    grads = torch.autograd.grad(finite.square().sum(), [*made.parameters(), x, latent], allow_unused=True)
    assert grads[-2:] == (None, None)
    assert all(grad is not None and grad.any() for grad in grads[:-2])


def test_without_a_divergence_nothing_is_learned_and_the_picks_stay() -> None:
    x, q_latent = inputs()
    learning = indexer()(Inputs(x, x, q_latent), context=context(), where="test")
    idle = indexer(replace(CONFIG, index_kl_coef=0.0))(Inputs(x, x, q_latent), context=context(), where="test")
    assert torch.equal(idle.picks, learning.picks)
    assert not idle.scores.requires_grad
    assert idle.scores.shape == idle.picks.shape
