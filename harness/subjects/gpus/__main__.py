"""Several GPUs against one over NCCL, in float32 and bfloat16, on ragged real text: `python -m harness.subjects.gpus`.

A step of training: forward, backward, AdamW. `--backend gloo` runs the same program on processes without a GPU:

    python -m harness.subjects.gpus --backend gloo --gpus 4 --model tiny --tokens 256
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from harness.atomic import write_json
from harness.subjects.gpus.compare import Asked, compare_here
from harness.subjects.gpus.meshes import by_world, meshes, models, named
from harness.subjects.rank_pool import DEVICES, RankFailure, RankPool
from v4model.exchange import RankError
from v4model.parallel.groups import Mesh

DTYPES = ("float32", "bfloat16")
_PATIENCE_SECONDS = 900.0
"""How long ranks wait for the first one, which computes the references alone."""


def main(arguments: list[str] | None = None) -> int:
    """Compares and prints a line each; 0 if all hold, 1 if one does not or did not end, 3 without GPUs enough."""
    parser = argparse.ArgumentParser(prog="python -m harness.subjects.gpus", description=__doc__)
    parser.add_argument("--gpus", type=int, default=2, help="ranks, one a GPU over nccl")
    parser.add_argument("--backend", choices=sorted(DEVICES), default="nccl", help="gloo: processes without a GPU")
    parser.add_argument("--model", choices=sorted(models()), default="widened")
    parser.add_argument("--tokens", type=int, default=4096, help="of each pack")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="both by default")
    parser.add_argument("--output", type=Path, default=Path("gpus.json"))
    given = parser.parse_args(arguments)
    device = DEVICES[given.backend]
    if device == "cuda" and torch.cuda.device_count() < given.gpus:
        print(f"got {torch.cuda.device_count()} GPUs; expected {given.gpus}; where: this machine")
        return 3
    report: dict[str, Any] = {
        "schema_version": 2,
        "backend": given.backend,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "model": given.model,
        "tokens_per_pack": given.tokens,
        "rows": [],
        "unfinished": [],
    }
    for world, found in by_world(meshes(given.gpus, models()[given.model])).items():
        with _Pools(world, backend=given.backend) as pools:
            for dtype in given.dtype or DTYPES:
                asked = Asked(model=given.model, dtype=dtype, gpus=given.gpus, tokens=given.tokens, device=device)
                for mesh in found:
                    _compare(pools, asked, mesh, report)
                    # As it goes: what is there is not lost to a later mesh.
                    write_json(given.output, report)
    return 0 if all(row["holds"] for row in report["rows"]) and not report["unfinished"] else 1


class _Pools:
    """A pool of ranks, a new one after a failure."""

    def __init__(self, world: int, *, backend: str) -> None:
        self._world, self._backend = world, backend
        self._pool = self._started()

    def __enter__(self) -> _Pools:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def alive(self) -> RankPool:
        """One whose ranks all live."""
        if not self._pool.alive:
            self._pool.close()
            self._pool = self._started()
        return self._pool

    def _started(self) -> RankPool:
        return RankPool(self._world, timeout_seconds=_PATIENCE_SECONDS, backend=self._backend)


def _compare(pools: _Pools, asked: Asked, mesh: Mesh, report: dict[str, Any]) -> None:
    """Adds a row to the report, or why there is none, and prints it."""
    try:
        row, *_ = pools.alive().call(compare_here, [(asked, mesh)] * mesh.world)
    except (RankFailure, RankError) as error:
        report["unfinished"].append({"dtype": asked.dtype, "mesh": named(mesh), "error": str(error)})
        print(f"FAILS {asked.dtype:<8} {named(mesh)}: {error}", flush=True)
        return
    report["rows"].append(row.to_json())
    print(row.sentence(), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
