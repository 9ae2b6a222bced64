"""Checkpoints: a folder a step, whole or not there, to be read by any number of ranks of the same engine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from v4model.errors import DataError
from v4model.train.engine import Engine

_FORMAT = 2
_ABOUT, _STATE = "about.json", "state"


def save_checkpoint(engine: Engine, folder: Path, *, next_step: int, about: Mapping[str, Any]) -> Path:
    """Write `folder/step-N`, N steps done; collective. about: what must be the same when the run goes on."""
    final = folder / f"step-{next_step:08d}"
    partial = folder / f".{final.name}.partial"
    if engine.member.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    _barrier()
    engine.save(partial / _STATE)
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
    engine.load(path / _STATE)
    return int(content["next_step"])


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()
