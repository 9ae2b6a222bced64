"""Checkpoints: a folder a step, whole or not there, to be read by any number of ranks.

torch.distributed.checkpoint writes what each rank holds and reads what each wants. Every expert is an entry of its own,
so that it does not matter how many of them a rank held when it was written.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from v4model.errors import DataError
from v4model.layers.experts import held_experts
from v4model.layers.router import LearnedRouter
from v4model.train.engine import Engine

_FORMAT = 1
_ABOUT = "about.json"


def save_checkpoint(engine: Engine, folder: Path, *, next_step: int, about: Mapping[str, Any]) -> Path:
    """Write `folder/step-N`, N steps done; collective. about: what must be the same when the run goes on."""
    final = folder / f"step-{next_step:08d}"
    partial = folder / f".{final.name}.partial"
    if engine.member.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    _barrier()
    with _one_process_is_meant():
        save(_entries(engine), checkpoint_id=partial, no_dist=not dist.is_initialized())
    if engine.member.rank == 0:
        content = {"format": _FORMAT, "next_step": next_step, "about": dict(about)}
        (partial / _ABOUT).write_text(json.dumps(content), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
    _barrier()
    return final


def newest_checkpoint(folder: Path) -> Path | None:
    """The whole checkpoint of the most steps in a folder, None if there is none."""
    return max((path.parent for path in folder.glob(f"step-*/{_ABOUT}")), default=None)


def load_checkpoint(engine: Engine, path: Path, *, about: Mapping[str, Any]) -> int:
    """Fill an engine of any mesh from a checkpoint and return how many steps are done; collective.

    Raises:
        DataError: no checkpoint, or one of a run that was told something else.
    """
    try:
        content = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(got=str(error), expected="a checkpoint", where=str(path)) from error
    if content.get("format") != _FORMAT:
        raise DataError(got=f"format {content.get('format')}", expected=str(_FORMAT), where=str(path))
    for name, value in about.items():
        was = content["about"].get(name)
        if was != value:
            raise DataError(got=f"{name} {value}", expected=f"{was}, as the run began", where=str(path))
    with _one_process_is_meant():
        load(_entries(engine), checkpoint_id=path, no_dist=not dist.is_initialized())
    engine.optimizer.publish()
    return int(content["next_step"])


def _entries(engine: Engine) -> dict[str, Tensor]:
    """What this rank holds, by names that all ranks agree on; views, so that reading fills the engine.

    Stages that hold copies of one embedding write the same values under one name.
    """
    held = held_experts(engine.model)
    entries = {}
    for sort, by_name in engine.optimizer.state().items():
        for name, tensor in by_name.items():
            if name in held and tensor.ndim:
                for row, expert in enumerate(held[name]):
                    entries[f"{sort}/{name}/{expert}"] = tensor[row]
            else:
                entries[f"{sort}/{name}"] = tensor
    for path, module in engine.model.named_modules():
        if isinstance(module, LearnedRouter):
            entries[f"bias/{path}"] = module.e_score_correction_bias
    return entries


@contextmanager
def _one_process_is_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()
