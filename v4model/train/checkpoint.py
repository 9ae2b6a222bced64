"""Checkpoints: a folder a step, whole or not there, to be read by any number of ranks of the same engine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

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
    written = content.get("format") if isinstance(content, dict) else None
    if written != _FORMAT:
        raise DataError(got=f"format {written}", expected=str(_FORMAT), where=str(path))
    for name, value in about.items():
        was = content.get("about", {}).get(name)
        if was != value:
            raise DataError(got=f"{name} {value}", expected=f"{was}, as the run began", where=str(path))
    if not (path / _STATE).is_dir():
        raise DataError(got=f"no folder {_STATE}", expected="a whole checkpoint", where=str(path))
    try:
        engine.load(path / _STATE)
    except (Exception, CheckpointException) as error:  # whatever a damaged file makes of the libraries that read it
        got = f"a state that cannot be read ({type(error).__name__}: {str(error).strip().splitlines()[-1]})"
        raise DataError(got=got, expected="a whole checkpoint", where=str(path)) from error
    return int(content["next_step"])


def prepare_folder(folder: Path, *, resume: bool) -> None:
    """Makes a run's folder of checkpoints, before a step is taken that could not be saved.

    Raises:
        DataError: no such folder can be made, or a run that does not go on finds another's checkpoints: the next one to
            go on would take them for its own.
    """
    newest = newest_checkpoint(folder)
    if newest is not None and not resume:
        expected = "an --output without checkpoints, or --resume"
        raise DataError(got=f"{newest.name} of an earlier run", expected=expected, where=str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(got=str(error.strerror), expected="a folder for checkpoints", where=str(folder)) from error


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()
