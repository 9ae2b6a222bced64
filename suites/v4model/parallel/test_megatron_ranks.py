"""MegatronV4 takes its groups from parallel_state: context and expert ranks on gloo give what one rank gives."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist

from harness.subjects.rank_pool import RankPool
from v4model import PackLayout, presets

LENGTHS, TOTAL = [5, 12, 3, 9], 32


def _batch(own: slice) -> dict[str, object]:
    from v4model.parallel.megatron import PackedSeqParams

    layout = PackLayout.from_lengths(LENGTHS, total=TOTAL)
    tokens = torch.randint(0, 512, (TOTAL,), generator=torch.Generator().manual_seed(1))
    source = layout.ahead(1)
    boundaries = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return {
        "input_ids": tokens[None, own],
        "position_ids": layout.position[None, own],
        "attention_mask": None,
        "labels": torch.where(source >= 0, tokens[source], -100)[None, own],
        "loss_mask": (source >= 0).double()[None, own],
        "packed_seq_params": PackedSeqParams(qkv_format="thd", cu_seqlens_q=boundaries, cu_seqlens_kv=boundaries),
    }


def _loss_and_gradients(own: slice) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    from v4model.parallel.megatron import MegatronV4

    model = MegatronV4(presets.tiny(), dtype=torch.float64)
    batch = _batch(own)
    nll = model(**batch)
    labels = sum(length - 1 for length in LENGTHS)
    ((nll * batch["loss_mask"]).sum() / labels).backward()
    return nll.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def _on_parallel_state(rank: int, *, zig_zag: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    from v4model.parallel.megatron import parallel_state

    torch.set_num_threads(1)
    if not parallel_state.is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parallel_state.initialize_model_parallel(
                context_parallel_size=2, expert_model_parallel_size=2, create_gloo_process_groups=False
            )
    half = TOTAL // 2
    if zig_zag:
        # Megatron's balanced order: quarters 0 and 3 on rank 0, 1 and 2 on rank 1.
        quarter = TOTAL // 4
        order = [*range(quarter), *range(3 * quarter, TOTAL)] if rank == 0 else list(range(quarter, 3 * quarter))
        return _loss_and_gradients(torch.tensor(order))  # type: ignore[arg-type]
    nll, gradients = _loss_and_gradients(slice(rank * half, (rank + 1) * half))
    for name, grad in gradients.items():
        # Experts are held once in this group, all else twice.
        if ".mlp.experts." not in name:
            dist.all_reduce(grad)
    return nll, gradients


@pytest.fixture(scope="module")
def pool():
    pool = RankPool(2)
    yield pool
    pool.close()


def test_two_ranks_give_the_loss_and_gradients_of_one(pool: RankPool) -> None:
    expected_nll, expected = _loss_and_gradients(slice(0, TOTAL))
    (first, low), (second, high) = pool.call(_contiguous, [(0,), (1,)])
    torch.testing.assert_close(torch.cat([first, second], dim=1), expected_nll, rtol=1e-10, atol=1e-12)
    for name, wanted in expected.items():
        got = torch.cat([low[name], high[name]]) if ".mlp.experts." in name else low[name]
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_zig_zag_order_is_refused_by_its_positions() -> None:
    pool = RankPool(2)
    try:
        with pytest.raises(Exception, match=r"PackError: got position_ids of .* from the boundaries"):
            pool.call(_zig_zag, [(0,), (1,)])
    finally:
        pool.close()


def _contiguous(rank: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return _on_parallel_state(rank, zig_zag=False)


def _zig_zag(rank: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return _on_parallel_state(rank, zig_zag=True)
