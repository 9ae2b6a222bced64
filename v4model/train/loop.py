"""The run itself: prove isolation, then step after step, a record each, checkpoints on the way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from v4model.errors import ConfigError, V4Error
from v4model.train.checkpoint import load_checkpoint, newest_checkpoint, prepare_folder, save_checkpoint
from v4model.train.engine import Engine
from v4model.train.feed import Feed, StepPacks
from v4model.train.isolation import prove_isolation
from v4model.train.record import RecordLog, StepRecord


class NotFiniteError(V4Error):
    """A step whose loss or gradient is no number; the weights are those of the step before."""


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where a run leaves what it leaves: `log` its records, `checkpoints` a folder a step, None for none.

    save_every: steps between checkpoints; the last step is always saved. about: what a run that goes on must share.
    """

    log: Path
    checkpoints: Path | None
    save_every: int | None
    about: Mapping[str, Any]


def train(
    engine: Engine,
    feed: Feed,
    files: RunFiles,
    *,
    preflight: bool = True,
    resume: bool = False,
    pack_command: Callable[[int], str] = "pack {}".format,
    proven: Callable[[float], None] | None = None,
    done: Callable[[StepRecord], None] | None = None,
) -> int:
    """Train to `engine.settings.steps`, and return how many steps are done: fewer after Ctrl-C, which saves first.

    Args:
        preflight: prove isolation on the first pack before the first step.
        resume: go on from the newest checkpoint if there is one.
        pack_command: of a pack's number, how a person looks at that pack; for messages.
        proven: called with the seconds that the proof of isolation took.
        done: called with each record.

    Raises:
        IsolationError: a sample of the first pack sees another one.
        NotFiniteError: after saving nothing; its records are in the log.
        ConfigError: a proof is asked of a pipeline stage.
        DataError: a checkpoint of another run, a damaged one, or a folder that cannot hold this run's.
    """
    first = 0
    if files.checkpoints is not None:
        prepare_folder(files.checkpoints, resume=resume)
    newest = newest_checkpoint(files.checkpoints) if resume and files.checkpoints is not None else None
    if newest is not None:
        first = load_checkpoint(engine, newest, about=files.about)
    if preflight:
        if engine.mesh.pp > 1:
            got = f"preflight with {engine.mesh.pp} pipeline stages"
            raise ConfigError(got=got, expected="--no-preflight: the proof needs a whole model", where="training")
        packs = feed.step(first, replica=engine.replica)
        began = time.perf_counter()
        prove_isolation(engine.model, packs.own[0], ranks=engine.member.ranks, where=pack_command(packs.numbers[0]))
        if proven is not None:
            proven(time.perf_counter() - began)
    log = RecordLog(files.log, first_step=first) if engine.member.rank == 0 else None
    saved = step = first
    try:
        with _interrupts_noted() as noted:
            while step < engine.settings.steps and not _any_rank(noted=bool(noted)):
                record = _one_step(engine, feed.step(step, replica=engine.replica), step, log=log)
                if done is not None:
                    done(record)
                if not record.is_finite:
                    where = " and ".join(map(pack_command, record.packs))
                    got = f"loss {record.loss:g} and gradient norm {record.grad_norm:g} at step {step}"
                    raise NotFiniteError(got=got, expected="finite numbers", where=where)
                step += 1
                if files.save_every and step % files.save_every == 0:
                    saved = _save(engine, files, step)
            if saved != step:
                _save(engine, files, step)
    finally:
        if log is not None:
            log.close()
    return step


def _one_step(engine: Engine, packs: StepPacks, step: int, *, log: RecordLog | None) -> StepRecord:
    began, sent = time.perf_counter(), engine.sent_bytes
    losses = engine.gradients(packs)
    record = StepRecord(
        step=step,
        loss=losses.loss,
        main=losses.main,
        mtp=losses.mtp,
        balance=losses.balance,
        kl=losses.kl,
        grad_norm=losses.grad_norm,
        learning_rate=engine.settings.learning_rate_at(step),
        real_tokens=packs.real_tokens,
        supervised_tokens=packs.counts.labels[0],
        packs=tuple(packs.numbers),
        without_hca=packs.without_hca,
        seconds=0.0,
    )
    if record.is_finite:
        engine.update(step, losses)
    record = _timed(record, began, engine)
    cp_bytes, ep_bytes = engine.all_sent_since(sent)
    record = replace(record, cp_bytes=cp_bytes, ep_bytes=ep_bytes)
    if log is not None:
        log.append(record)
    return record


def _timed(record: StepRecord, began: float, engine: Engine) -> StepRecord:
    if engine.model.device.type == "cuda":
        torch.cuda.synchronize()
    return replace(record, seconds=time.perf_counter() - began, peak_bytes=engine.peak_bytes())


def _save(engine: Engine, files: RunFiles, step: int) -> int:
    if files.checkpoints is not None:
        save_checkpoint(engine, files.checkpoints, next_step=step, about=files.about)
    return step


def _any_rank(*, noted: bool) -> bool:
    """Whether a rank was asked to stop: all end after the same step."""
    if not dist.is_initialized():
        return noted
    asked = torch.tensor([float(noted)])
    if torch.cuda.is_available() and dist.get_backend() == "nccl":
        asked = asked.cuda()
    dist.all_reduce(asked, op=dist.ReduceOp.MAX)
    return bool(asked.item())


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Ctrl-C is noted, so that the step under way ends and the run is saved; a second one ends the process."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, _: object) -> None:
        noted.append(number)
        if len(noted) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
