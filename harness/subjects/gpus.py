"""One GPU against several over NCCL, in float32 and bfloat16, on ragged real text: `python -m harness.subjects.gpus`.

Rounding differs between the two, so neither is the reference: both are compared with one GPU in float64 on the same
(rounded) weights, and several GPUs may be at most twice as far from it as one GPU is, in root mean square.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from harness.corpus import load_corpus
from v4model import Pack, V4Config, V4Model, V4Output, presets
from v4model.layers.experts import held_experts
from v4model.model.model import StageOutput
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Mesh
from v4model.parallel.pp import run_step
from v4model.parallel.processes import join, sum_gradients

ALLOWED = 2.0
"""How many times the error of one GPU that of several may be."""
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Root mean square errors against float64, relative to the root mean square of what is compared.

    loss_difference: of the step's loss, several GPUs against one, relative.
    """

    mesh: str
    dtype: str
    tokens: int
    samples: int
    nll_one: float
    nll_several: float
    gradient_one: float
    gradient_several: float
    loss_difference: float
    step_seconds: float

    @property
    def holds(self) -> bool:
        return self.nll_several <= ALLOWED * self.nll_one and self.gradient_several <= ALLOWED * self.gradient_one


def widened() -> V4Config:
    """three_kinds with the real vocabulary and widths that fill a GPU's tiles."""
    return replace(
        presets.three_kinds(),
        vocab_size=129280,
        hidden_size=1024,
        num_attention_heads=16,
        head_dim=128,
        qk_rope_head_dim=32,
        q_lora_rank=256,
        o_lora_rank=128,
        index_head_dim=64,
        index_topk=512,
        n_routed_experts=16,
        moe_intermediate_size=512,
        fixed_shape_experts=False,
        initializer_range=0.03,
    )


def meshes(world: int) -> tuple[Mesh, ...]:
    """Every way of using `world` GPUs that is compared."""
    return (
        Mesh(cp=world),
        Mesh(dp=world, ep=world),
        Mesh(cp=world, ep=world),
        Mesh(pp=world),
    )


def real_packs(count: int, *, tokens: int) -> list[Pack]:
    """Whole samples of real text one after another until `tokens` are full, the rest of the row padding."""
    samples = iter(load_corpus(None).samples)
    packs = []
    for _ in range(count):
        taken, flags, used = [], [], 0
        for sample in samples:
            if used + len(sample.tokens) > tokens:
                break
            taken.append(sample.tokens)
            flags.append(sample.supervised)
            used += len(sample.tokens)
        packs.append(Pack.from_samples(taken, supervised=flags, total=tokens))
    return packs


@dataclass(frozen=True, eq=False)
class _Step:
    """What a step gave: nll of all packs' tokens and gradients by name, in float64 on the host."""

    loss: float
    nll: Tensor
    gradients: dict[str, Tensor]


def _on_one(config: V4Config, packs: Sequence[Pack], *, dtype: torch.dtype, rounded: torch.dtype) -> _Step:
    """A step on one GPU; weights are rounded to `rounded` first, whatever `dtype` computes in."""
    source = V4Model(config, dtype=rounded, device="cuda", seed=_SEED)
    model = V4Model(config, dtype=dtype, device="cuda", seed=_SEED)
    model.load_state_dict(source.state_dict())
    counts = counts_of(packs, depths=config.num_nextn_predict_layers)
    outs = [model(pack, counts=counts) for pack in packs]
    loss = torch.stack([out.loss for out in outs]).sum()
    loss.backward()
    nll = torch.cat([out.token_nll.detach().double().cpu() for out in outs])
    return _Step(loss.item(), nll, {name: _host(parameter.grad) for name, parameter in model.named_parameters()})


def _on_mesh(config: V4Config, packs: Sequence[Pack], mesh: Mesh, *, dtype: torch.dtype) -> tuple[_Step | None, float]:
    """A step on the mesh, joined on rank 0 (None elsewhere), and the seconds of a second, warm step."""
    member, rank = join(mesh), dist.get_rank()
    model = V4Model(config, dtype=dtype, device="cuda", seed=_SEED, share=mesh.share(rank))
    counts = counts_of(packs, depths=config.num_nextn_predict_layers)
    own = [pack for index, pack in enumerate(packs) if index % mesh.dp == mesh.replica(rank)]

    def step() -> list[StageOutput]:
        model.zero_grad()
        outs = run_step(model, own, ranks=member.ranks, pipe=member.pipe, counts=counts)
        sum_gradients(model, mesh=mesh)
        torch.cuda.synchronize()
        return outs

    outs = step()
    part = _Part(
        loss=sum(out.loss.item() for out in outs) if member.ranks.cp.rank == 0 else 0.0,
        nll=[_host(out.token_nll) for out in outs if isinstance(out, V4Output)],
        replica=mesh.replica(rank),
        cp_rank=member.ranks.cp.rank,
        gradients={name: _host(parameter.grad) for name, parameter in model.named_parameters()},
        experts=held_experts(model),
    )
    parts: list[_Part] = [part] * mesh.world
    dist.gather_object(part, parts if rank == 0 else None)
    began = time.perf_counter()
    step()
    seconds = time.perf_counter() - began
    return (_joined(parts, packs, mesh) if rank == 0 else None), seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """What one rank has of a step; nll of its own tokens of its replica's packs, on the last stage only."""

    loss: float
    nll: list[Tensor]
    replica: int
    cp_rank: int
    gradients: dict[str, Tensor]
    experts: dict[str, range]


def _joined(parts: Sequence[_Part], packs: Sequence[Pack], mesh: Mesh) -> _Step:
    gradients: dict[str, Tensor] = {}
    shards: dict[tuple[int, int], Tensor] = {}
    for part in parts:
        for index, nll in enumerate(part.nll):
            shards[index * mesh.dp + part.replica, part.cp_rank] = nll
        for name, grad in part.gradients.items():
            held = part.experts.get(name)
            if held is None:
                gradients.setdefault(name, grad)
            else:
                whole = gradients.setdefault(name, grad.new_zeros(len(held) * mesh.ep, *grad.shape[1:]))
                whole[held.start : held.stop] = grad
    rows = [
        torch.cat([shards[index, cp_rank] for cp_rank in range(mesh.cp)])[: pack.layout.total]
        for index, pack in enumerate(packs)
    ]
    return _Step(sum(part.loss for part in parts), torch.cat(rows), gradients)


def _host(x: Tensor | None) -> Tensor:
    assert x is not None
    return x.detach().double().cpu()


def _error(got: _Step, reference: _Step) -> tuple[float, float]:
    """Relative root mean square error of nll, and of all gradients together."""
    nll = _rms(got.nll - reference.nll) / _rms(reference.nll)
    difference = torch.cat([(got.gradients[name] - grad).flatten() for name, grad in reference.gradients.items()])
    whole = torch.cat([grad.flatten() for grad in reference.gradients.values()])
    return nll, _rms(difference) / _rms(whole)


def _rms(x: Tensor) -> float:
    return math.sqrt(float(x.square().mean()))


def _run(rank: int, world: int, rendezvous: str, tokens: int, output: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    config, packs = widened(), real_packs(2 * world, tokens=tokens)
    rows: list[Comparison] = []
    for dtype in (torch.float32, torch.bfloat16):
        references = None
        if rank == 0:
            exact = _on_one(config, packs, dtype=torch.float64, rounded=dtype)
            one = _on_one(config, packs, dtype=dtype, rounded=dtype)
            references = exact, one, _error(one, exact)
        dist.barrier()
        for mesh in meshes(world):
            several, seconds = _on_mesh(config, packs, mesh, dtype=dtype)
            if references is None or several is None:
                continue
            exact, one, (nll_one, gradient_one) = references
            nll_several, gradient_several = _error(several, exact)
            row = Comparison(
                mesh=f"dp={mesh.dp} pp={mesh.pp} cp={mesh.cp} ep={mesh.ep}",
                dtype=str(dtype).removeprefix("torch."),
                tokens=sum(pack.layout.real_tokens for pack in packs),
                samples=sum(pack.layout.num_samples for pack in packs),
                nll_one=nll_one,
                nll_several=nll_several,
                gradient_one=gradient_one,
                gradient_several=gradient_several,
                loss_difference=abs(several.loss - one.loss) / abs(one.loss),
                step_seconds=seconds,
            )
            rows.append(row)
            print(
                f"{'holds' if row.holds else 'FAILS'} {row.dtype:<8} {row.mesh}: nll {row.nll_several:.2e} "
                f"(one GPU {row.nll_one:.2e}), gradients {row.gradient_several:.2e} (one GPU {row.gradient_one:.2e}), "
                f"loss differs by {row.loss_difference:.1e}, {row.step_seconds:.2f} s a step",
                flush=True,
            )
    if rank == 0:
        report = {
            "schema_version": 1,
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "rows": [asdict(row) | {"holds": row.holds} for row in rows],
        }
        Path(output).write_text(json.dumps(report, indent=1))
    dist.destroy_process_group()


def main() -> int:
    """Compares and prints a line each; 0 if all hold, 1 if one does not, 3 without GPUs enough."""
    parser = argparse.ArgumentParser(prog="python -m harness.subjects.gpus", description=__doc__)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096, help="of each pack")
    parser.add_argument("--output", default="gpus.json")
    arguments = parser.parse_args()
    if torch.cuda.device_count() < arguments.gpus:
        print(f"got {torch.cuda.device_count()} GPUs; expected {arguments.gpus}; where: this machine")
        return 3
    with tempfile.TemporaryDirectory() as folder:
        spawn(
            _run,
            args=(arguments.gpus, os.path.join(folder, "rendezvous"), arguments.tokens, arguments.output),
            nprocs=arguments.gpus,
        )
    rows = json.loads(Path(arguments.output).read_text())["rows"]
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
