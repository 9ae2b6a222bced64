"""MegatronV4: megatron-core's own PackedSeqParams in, per-token loss out, contradictions refused."""

import pytest
import torch

from v4model import PackError, PackLayout, presets
from v4model.pack import Pack
from v4model.parallel.groups import Mesh
from v4model.parallel.megatron import MegatronV4, PackedSeqParams, parallel_state

LENGTHS, SLOTS = [5, 12, 3], [8, 12, 4]
RankGenerator = parallel_state.RankGenerator


@pytest.fixture(scope="module")
def model():
    return MegatronV4(presets.tiny(), dtype=torch.float64)


@pytest.fixture
def layout():
    return PackLayout.from_lengths(LENGTHS, slots=SLOTS)


@pytest.fixture
def batch(layout):
    tokens = torch.randint(0, 512, (layout.total,), generator=torch.Generator().manual_seed(1))
    source = layout.ahead(1)
    labels = torch.where(source >= 0, tokens[source.clamp_min(0)], -100)
    return {
        "input_ids": tokens[None],
        "position_ids": layout.position[None],
        "attention_mask": None,
        "labels": labels[None],
        "loss_mask": (source >= 0)[None].double(),
        "packed_seq_params": _params(LENGTHS, SLOTS),
    }


def _params(lengths, slots):
    real = torch.tensor([0, *lengths]).cumsum(0).int()
    padded = torch.tensor([0, *slots]).cumsum(0).int()
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=real,
        cu_seqlens_kv=real,
        cu_seqlens_q_padded=padded,
        cu_seqlens_kv_padded=padded,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
    )


def test_packed_seq_params_give_the_layout(layout):
    assert PackLayout.from_megatron(_params(LENGTHS, SLOTS)) == layout


def test_per_token_loss_and_all_gradients_are_the_models(model, batch, layout):
    own = model.v4(Pack(batch["input_ids"][0], layout=layout))
    expected = torch.autograd.grad(own.loss, list(model.v4.parameters()))
    nll = model(**batch)
    assert torch.equal(nll[0], own.token_nll)
    loss = (nll * batch["loss_mask"]).sum() / batch["loss_mask"].sum()
    for got, want in zip(torch.autograd.grad(loss, list(model.v4.parameters())), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-14)


def test_loss_mask_weighs_labels_by_position(model, batch, layout):
    batch["loss_mask"][0, :7] = 0
    supervised = torch.zeros(layout.total, dtype=torch.bool)
    supervised[layout.ahead(1)[batch["loss_mask"][0] > 0]] = True
    own = model.v4(Pack(batch["input_ids"][0], layout=layout, supervised=supervised))
    nll = model(**batch)
    torch.testing.assert_close((nll * batch["loss_mask"]).sum(), own.terms.nll_sums[0])


def test_without_labels_it_gives_logits(model, batch):
    assert model(batch["input_ids"], None, None, packed_seq_params=batch["packed_seq_params"]).shape == (1, 24, 512)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"packed_seq_params": None}, "got None; expected PackedSeqParams"),
        ({"attention_mask": torch.ones(1, 1, 24, 24)}, "got an attention_mask; expected None"),
        ({"position_ids": torch.arange(24)[None]}, "got position_ids of 8; expected 0, from the boundaries"),
        ({"labels": torch.zeros(1, 24, dtype=torch.int64)}, "got labels of 0"),
        ({"loss_mask": torch.ones(1, 24)}, "sample 0 of 3, position 4"),
        ({"packed_seq_params": PackedSeqParams(qkv_format="sbhd")}, "got qkv_format 'sbhd'; expected 'thd'"),
        ({"input_ids": torch.zeros(2, 24, dtype=torch.int64)}, "expected one packed row"),
    ],
)
def test_contradictions_are_refused(model, batch, change, message):
    with pytest.raises(PackError, match=message):
        model(**(batch | change))


@pytest.mark.parametrize(
    "sizes", [{"cp": 2, "dp": 3, "pp": 2}, {"cp": 2, "dp": 2, "pp": 3, "ep": 4}, {"cp": 3, "dp": 2, "ep": 2}]
)
def test_a_mesh_orders_its_ranks_as_megatron_does(sizes):
    mesh = Mesh(**sizes)
    order = "tp-cp-ep-dp-pp"
    ours = RankGenerator(tp=1, ep=1, dp=mesh.dp, pp=mesh.pp, cp=mesh.cp, order=order)
    # Megatron's experts have a grid of their own: data parallelism over what expert parallelism leaves of a stage.
    experts = RankGenerator(tp=1, ep=mesh.ep, dp=mesh.stage_size // mesh.ep, pp=mesh.pp, cp=1, order=order)
    expected = {
        mesh.cp_group: ours.get_ranks("cp"),
        mesh.stage_group: ours.get_ranks("dp-cp"),
        mesh.ep_group: experts.get_ranks("ep"),
        mesh.expert_replicas: experts.get_ranks("dp"),
    }
    for group, theirs in expected.items():
        assert sorted({group(rank) for rank in range(mesh.world)}) == sorted(map(tuple, theirs)), group.__name__
    stages = [tuple(mesh.peer(rank, stage=stage) for stage in range(mesh.pp)) for rank in range(mesh.stage_size)]
    assert sorted(stages) == sorted(map(tuple, ours.get_ranks("pp")))


def test_a_loop_that_divides_gradients_by_tokens_weighs_every_loss_alike(batch, layout):
    model = MegatronV4(presets.tiny(), dtype=torch.float64, per_token_loss=True)
    own = model.v4(Pack(batch["input_ids"][0], layout=layout))
    expected = torch.autograd.grad(own.loss, list(model.v4.parameters()))
    nll = model(**batch)
    found = torch.autograd.grad((nll * batch["loss_mask"]).sum(), list(model.v4.parameters()))
    tokens = batch["loss_mask"].sum()
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got / tokens, want, rtol=1e-10, atol=1e-14)
