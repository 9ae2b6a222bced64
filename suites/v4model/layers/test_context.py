"""PackContext of a rank: its slices of what one rank knows, with the tokens before and ahead that its layers read."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import LAYOUTS, random_pack
from v4model import Pack, PackError, PackLayout, presets
from v4model.exchange import Ranks
from v4model.layers.context import PackContext, context_of
from v4model.parallel.groups import Mesh
from v4model.parallel.in_process import InProcessWorld

CONFIG = presets.tiny()
DEPTHS = CONFIG.num_nextn_predict_layers
every_cut = pytest.mark.parametrize("ranks", [1, 2, 4, 8])
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def contexts(pack: Pack, *, ranks: int) -> list[PackContext]:
    """Of every rank; making them exchanges nothing."""
    world = InProcessWorld(Mesh(cp=ranks))
    found = [_context(pack, member.ranks) for member in world.members]
    assert not any(member.ranks.cp.sent_bytes for member in world.members)
    return found


def _context(pack: Pack, ranks: Ranks) -> PackContext:
    return context_of(pack, config=CONFIG, ranks=ranks, dtype=torch.float64, device=torch.device("cpu"))


def padded(x: torch.Tensor, total: int, *, fill: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, total - len(x)), value=fill)


@every_cut
@every_layout
def test_own_tokens_and_those_ahead(layout: PackLayout, ranks: int) -> None:
    mask = torch.rand(layout.total, generator=torch.Generator().manual_seed(1)) < 0.5
    pack = random_pack(layout, supervised=mask)
    found = contexts(pack, ranks=ranks)
    total = found[0].layout.total
    tokens = padded(torch.where(layout.real, pack.tokens, 0), total, fill=0)
    supervised = padded(mask & layout.real, total, fill=0)
    for context in found:
        own = slice(context.plan.start, context.plan.end)
        ahead = slice(own.start, min(own.stop + DEPTHS + 1, total))
        assert torch.equal(context.tokens, tokens[own])
        assert torch.equal(context.sample, padded(layout.sample, total, fill=-1)[own])
        assert torch.equal(context.ahead_tokens, tokens[ahead])
        assert torch.equal(context.ahead_supervised, supervised[ahead])
        for steps in range(DEPTHS + 2):
            for t, source in enumerate(context.ahead(steps).tolist()):
                expected = int(padded(layout.ahead(steps), total, fill=-1)[own.start + t])
                assert source == (expected - own.start if expected >= 0 else -1)
                assert source < len(context.ahead_tokens), "what is ahead is at hand"


@every_cut
@every_layout
def test_rotations_of_queries_and_of_the_keys_before_them(layout: PackLayout, ranks: int) -> None:
    pack = random_pack(layout)
    whole = contexts(pack, ranks=1)[0]
    for context in contexts(pack, ranks=ranks):
        plan = context.plan
        for compressed in (False, True):
            cos, sin = whole.rotation(layout.total, compressed=compressed)
            for reach in {CONFIG.reach(layer) for layer in range(len(CONFIG.compress_ratios))} | {0}:
                first = plan.left(reach).start
                found = context.rotation(plan.end - first, compressed=compressed)
                real = min(plan.end, layout.total) - first  # padding behind the pack has position 0
                assert torch.equal(found[0][: max(real, 0)], cos[first : plan.end])
                assert torch.equal(found[1][: max(real, 0)], sin[first : plan.end])
                assert (found[0][max(real, 0) :] == 1).all()


@every_cut
@every_layout
def test_windows_and_their_rotations_are_shared_out(layout: PackLayout, ranks: int) -> None:
    pack = random_pack(layout)
    whole, parts = contexts(pack, ranks=1)[0], contexts(pack, ranks=ranks)
    for ratio in CONFIG.ratios:
        for name in ("first_token", "index", "sample"):
            joined = torch.cat([getattr(part.own_windows[ratio], name) for part in parts])
            assert torch.equal(joined, getattr(whole.own_windows[ratio], name))
        for table in (0, 1):
            joined = torch.cat([part.pool_rotation[ratio][table] for part in parts])
            assert torch.equal(joined, whole.pool_rotation[ratio][table])
        for part in parts:
            windows, reach = part.own_windows[ratio], 2 * ratio - 1 if ratio == 4 else ratio - 1
            first = windows.first_token - ratio * (windows.index > 0) if ratio == 4 else windows.first_token
            assert (first >= part.plan.left(reach).start).all(), "a window's tokens are within reach"


@every_cut
def test_a_token_outside_the_vocabulary_is_told_on_every_rank(ranks: int) -> None:
    ids = torch.zeros(9, dtype=torch.int64)
    ids[7] = 512
    with pytest.raises(PackError) as caught:
        contexts(Pack(ids, layout=PackLayout.from_lengths([3, 4], slots=[5, 4])), ranks=ranks)
    assert caught.value.where == "sample 1 of 2, position 2 (token 7)"
