"""Counted operations against a loop over pairs and against torch's own counter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from suites.v4model.support import LAYOUTS, random_pack, sees_token, sees_window
from v4model import V4Model, presets
from v4model.bench.work import keys_read, work_of
from v4model.pack import PackLayout


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_keys_read_are_the_pairs_seen_one_by_one(layout: PackLayout) -> None:
    config = presets.tiny()
    local = int(sees_token(layout, window=config.sliding_window).sum())
    assert keys_read(config, layout, ratio=0) == (local, 0)
    for ratio in config.ratios:
        seen = sees_window(layout, ratio=ratio).sum(1)
        read = seen.clamp(max=config.index_topk) if ratio == 4 else seen
        assert keys_read(config, layout, ratio=ratio) == (local + int(read.sum()), int(seen.sum()))


def test_linear_work_is_what_torch_counts() -> None:
    # One dense layer, so that attention is the only product that is not a weight's; experts on their own tokens.
    config = replace(
        presets.tiny(),
        num_hidden_layers=1,
        compress_ratios=(0,),
        num_nextn_predict_layers=0,
        num_hash_layers=0,
        fixed_shape_experts=False,
    )
    layout = PackLayout.single(32)
    model = V4Model(config, dtype=torch.float64)
    pack = random_pack(layout)
    with FlopCounterMode(display=False) as counter:
        model(pack).loss.backward()
    counted = counter.get_total_flops()
    work = work_of(config, layout)
    # Beside it: hyper-connections, and attention over the whole window where the plain function masks.
    assert 0.7 < work.total / counted < 1.0
