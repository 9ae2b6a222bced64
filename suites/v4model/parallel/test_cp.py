"""Context parallelism: any cut of any pack gives what one rank gives, and sends halos and pooled rows, no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from suites.v4model.parallel.ranks import (
    BOUND,
    CONFIG,
    DEPTHS,
    PACKS,
    compare_gradients,
    compare_outputs,
    masked_pack,
    whole_model,
)
from suites.v4model.support import LAYOUTS, relative_error
from v4model import Pack, PackError, PackLayout, V4Model, V4Output
from v4model.exchange import Request, Wire
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld

Result = tuple[V4Output, dict[str, Tensor]]
F64 = 8  # bytes


def run(model: V4Model, pack: Pack, member: Member | None = None) -> Result:
    """Output of one rank, and its own gradients of every parameter and of its embeddings."""
    ranks = None if member is None else member.ranks
    embeddings = model.embed(pack, ranks=ranks).detach().requires_grad_()
    out = model(pack, logits=True, embeddings=embeddings, ranks=ranks)
    # The embedding's table is not read where embeddings are given.
    inputs = {name: p for name, p in model.named_parameters() if name != "trunk.embed_tokens.weight"}
    grads = torch.autograd.grad(out.loss, [*inputs.values(), embeddings])
    return out, dict(zip([*inputs, "embeddings"], grads, strict=True))


def run_on(ranks: int, model: V4Model, pack: Pack) -> list[Result]:
    return InProcessWorld(Mesh(cp=ranks)).run(lambda member: run(model, pack, member))


def check(model: V4Model, pack: Pack, *, ranks: int) -> None:
    """Values, losses and gradients of all ranks joined against those of one."""
    whole, whole_grads = run(model, pack)
    results = run_on(ranks, model, pack)
    compare_outputs([[out for out, _ in results]], whole)
    for out, grads in results:
        for name in ("balance_loss", "kl_loss"):
            assert relative_error(getattr(out, name), getattr(whole, name), floor=1e-6) <= BOUND, name
        assert out.counts == whole.counts
        assert all(grad.isfinite().all() for grad in grads.values())
    summed = {
        name: torch.stack([grads[name] for _, grads in results]).sum(0) for name in whole_grads if name != "embeddings"
    }
    joined = torch.cat([grads["embeddings"] for _, grads in results])
    assert not joined[pack.layout.total :].any()
    compare_gradients(summed | {"embeddings": joined[: pack.layout.total]}, whole_grads)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS.keys())
def test_ranks_compute_what_one_rank_does(pack: Pack, ranks: int) -> None:
    check(whole_model(), pack, ranks=ranks)


@pytest.mark.parametrize(
    "lengths",
    [[48], [23, 25], [25, 23], [24, 24], [26, 22], [1, 47], [9, 9, 9, 21]],
    ids=lambda lengths: ".".join(map(str, lengths)),
)
def test_a_cut_anywhere_in_a_window_or_a_sample(lengths: list[int]) -> None:
    # Two ranks cut at token 24: inside a sample and a window, at its end, one token before and behind.
    check(whole_model(), masked_pack(PackLayout.from_lengths(lengths), seed=1), ranks=2)


@pytest.mark.parametrize(
    "changes", [{"attention_block_tokens": 5, "loss_chunk_tokens": 3}, {"fixed_shape_experts": False}]
)
def test_blocks_chunks_and_expert_shapes_are_each_ranks_own(changes: dict[str, int]) -> None:
    model = V4Model(replace(CONFIG, **changes), dtype=torch.float64)
    model.load_state_dict(whole_model().state_dict())
    check(model, PACKS["slots"], ranks=4)


@pytest.mark.parametrize("ratios", [(0, 0, 0, 0, 0, 0), (4, 4, 4, 4, 4, 4), (16, 16, 16, 16, 16, 16)], ids=str)
def test_a_model_of_one_kind(ratios: tuple[int, ...]) -> None:
    check(whole_model(replace(CONFIG, compress_ratios=ratios)), PACKS["ragged"], ranks=4)


def test_every_run_repeats_its_bits() -> None:
    first, again = (run_on(4, whole_model(), PACKS["slots"]) for _ in range(2))
    for (_, one), (_, other) in zip(first, again, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_rank_has_a_gradient_of_every_parameter() -> None:
    """The third rank of four holds no complete window, the fourth padding only; `run` refuses a missing gradient."""
    pack = masked_pack(PackLayout.from_lengths([17, 2, 1], total=32), seed=2)
    results = run_on(4, whole_model(), pack)
    for _, grads in results[2:]:
        assert not any(grad.any() for name, grad in grads.items() if name.endswith("compressor.kv_norm.weight"))
    assert not results[3][1]["embeddings"].any()


def test_embeddings_are_the_ranks_own() -> None:
    pack, model = PACKS["slots"], whole_model()
    parts = InProcessWorld(Mesh(cp=4)).run(lambda member: model.embed(pack, ranks=member.ranks))
    assert torch.equal(torch.cat(parts)[:47], model.embed(pack))
    with pytest.raises(PackError, match=r"got embeddings \[47, 32\]; expected \[12, 32\]"):
        InProcessWorld(Mesh(cp=4)).run(lambda m: model(pack, embeddings=model.embed(pack), ranks=m.ranks))


def test_outputs_say_which_tokens_they_are_of() -> None:
    results = run_on(4, whole_model(), PACKS["slots"])
    assert [(out.plan.start, out.plan.end) for out, _ in results] == [(0, 12), (12, 24), (24, 36), (36, 48)]
    assert all(out.logits.shape == (12, CONFIG.vocab_size) for out, _ in results)


# -- bytes -------------------------------------------------------------------------------------------------------------


class Recorder:
    """A wire that notes what it carries to other ranks, by request."""

    def __init__(self, wire: Wire, sent: Counter[Request]) -> None:
        self.wire, self.sent, self.rank, self.ranks = wire, sent, wire.rank, wire.ranks

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        self.sent[request] += sum(part.nbytes for rank, part in enumerate(sends) if rank != self.rank)
        return self.wire.swap(sends, receives=receives, request=request)


def sent_bytes(pack: Pack, *, ranks: int) -> tuple[Counter[Request], int]:
    """Of all ranks together in a forward and backward pass, by request; and as the exchanges count them themselves."""
    world, sent = InProcessWorld(Mesh(cp=ranks)), Counter[Request]()
    for member in world.members:
        member.ranks.cp.wire = Recorder(member.ranks.cp.wire, sent)
    world.run(lambda member: whole_model()(pack, ranks=member.ranks).loss.backward())
    return sent, sum(member.ranks.cp.sent_bytes.total() for member in world.members)


def formula(layout: PackLayout, *, ranks: int) -> Counter[Request]:
    """What the design allows a layer to send, from the configuration's numbers alone."""
    size = -(-layout.total // ranks)
    starts = [rank * size for rank in range(ranks)]
    expected: Counter[Request] = Counter()

    def both_ways(verb: str, where: str, elements: int) -> None:
        for backward in (False, True):
            expected[Request(verb, where, backward)] = elements * F64

    names = [f"trunk.layers.{layer}" for layer in range(4)] + [f"mtp.{depth}.block" for depth in range(DEPTHS)]
    for name, ratio in zip(names, CONFIG.compress_ratios, strict=True):
        reach = max(CONFIG.sliding_window - 1, 2 * 4 - 1 if ratio == 4 else ratio - 1)
        both_ways("left_halo", name, sum(min(reach, start) for start in starts) * CONFIG.hidden_size)
        rows = sum(length // ratio for length in layout.lengths) if ratio else 0
        if ratio:
            both_ways("all_rows", f"{name}.compressor", (ranks - 1) * rows * CONFIG.head_dim)
        if ratio == 4:
            both_ways("all_rows", f"{name}.indexer", (ranks - 1) * rows * CONFIG.index_head_dim)
        if name != "trunk.layers.0":  # a hash layer has no statistics
            # Counts and shares of each sample's experts; a total is not sent again backward.
            one_way = 2 * len(layout.lengths) * CONFIG.n_routed_experts * ranks * (ranks - 1) * F64
            expected[Request("total", f"{name}.mlp.gate")] = one_way
    ahead = sum(min(DEPTHS, size * ranks - start - size) for start in starts)
    both_ways("right_halo", "mtp", ahead * CONFIG.hidden_size)
    for where in ("loss 0", "loss 1", "loss 2", "kl"):
        expected[Request("total", where)] = ranks * (ranks - 1) * F64
    return expected


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", ["one sample", "ragged", "slots", "no window"])
def test_each_layer_sends_halos_and_pooled_rows_and_nothing_else(name: str, ranks: int) -> None:
    sent, counted = sent_bytes(PACKS[name], ranks=ranks)
    assert sent == formula(LAYOUTS[name], ranks=ranks)
    assert counted == sent.total()


def test_a_long_pack_never_sends_its_keys() -> None:
    """All keys would be (ranks - 1) rows a token; halos do not grow with the pack, pooled rows by 1 / ratio."""
    ranks, sizes = 4, (128, 256)
    of_dense_layer, of_csa_rows = ([], [])
    for size in sizes:
        sent, _ = sent_bytes(masked_pack(PackLayout.single(size), seed=0), ranks=ranks)
        of_dense_layer.append(sum(n for request, n in sent.items() if request.where == "trunk.layers.0"))
        of_csa_rows.append(sent[Request("all_rows", "trunk.layers.1.compressor")])
    assert of_dense_layer[0] == of_dense_layer[1] == 2 * (ranks - 1) * 7 * CONFIG.hidden_size * F64
    assert of_csa_rows == [(ranks - 1) * size // 4 * CONFIG.head_dim * F64 for size in sizes]
