"""Conducts a night: one stage after another, each as child processes for as long as its share of the budget lasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.conduct.budget import Part, share_out, told
from harness.conduct.child import Ended, run_child
from harness.conduct.record import DONE, LEFT_OUT, STOPPED, NightRecord, StageRecord

_HIGHEST_OWN_CODE = 5
"""The highest code that pytest returns by itself; the harness has 0 to 3."""

_WHOLE = (0, 1, 3)
"""Codes of a command that came to its end."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command, and the files that are there once it is complete, from the night's folder."""

    command: tuple[str, ...]
    leaves: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a stage's files say: a verdict with a sentence; files of use, from the night's folder.

    invalid: why they cannot be judged, if they are whole and say nothing. key: the configuration they hold for.
    """

    verdict: str
    sentence: str
    files: tuple[str, ...] = ()
    invalid: str = ""
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a night.

    part: what it asks of the budget. missing: why it cannot be run here. step: the n-th command, None past the last.
    endless: there is always one more, and a stage that has done one is done. judge: what its files say, once its status
    is known.
    """

    part: Part
    missing: str = ""
    step: Callable[[int], Step | None]
    judge: Callable[[StageRecord], Judged]
    endless: bool = False

    @property
    def name(self) -> str:
        """Its name in `night.json`."""
        return self.part.name


class Listener:
    """Is told how a night goes; says nothing by itself."""

    def runs(self, stage: StageRecord) -> None:
        """A stage is under way, and this is how far."""

    def ended(self, stage: StageRecord) -> None:
        """A stage is over."""


class Conductor:
    """Runs what a night has not run yet; `record` is written after each step, and while a step runs."""

    def __init__(self, folder: Path, record: NightRecord, listener: Listener) -> None:
        self.record = record
        self._folder = folder
        self._listener = listener

    def conduct(self, stages: Sequence[Stage]) -> None:
        """Run the stages in their order."""
        for number, stage in enumerate(stages):
            known = self.record.stage(stage.name)
            if known is None:
                known = self._begun(stage, [each for each in stages[number:] if not each.missing])
            if known.open:
                self._put(known)
                self._run(stage, known)
            ended = self.record.stage(stage.name)
            assert ended is not None
            self._listener.ended(ended)

    def _begun(self, stage: Stage, to_come: Sequence[Stage]) -> StageRecord:
        if stage.missing:
            return self._put(_left_out(stage, stage.missing))
        left = self.record.left_s
        if left is None:
            return StageRecord(name=stage.name)
        share = share_out(left, [each.part for each in to_come]).get(stage.name)
        if share is None:
            needs = (
                f"it needs {told(stage.part.least_s)}, which is more than its share of the {told(max(left, 0))} left"
            )
            return self._put(_left_out(stage, needs))
        return StageRecord(name=stage.name, share_s=round(share, 1))

    def _run(self, stage: Stage, known: StageRecord) -> None:
        trouble = cut = ""
        while not trouble and (step := stage.step(len(known.codes))) is not None:
            left = known.left_s
            if left is not None and (left <= 0 or (known.codes and left < known.step_s)):
                cut = "" if stage.endless and known.codes else "the budget was over"
                break
            ended = self._step(step, known)
            known = replace(known, seconds=round(known.seconds + ended.seconds, 1))
            is_there = all((self._folder / name).exists() for name in step.leaves)
            if ended.stopped and not (is_there and ended.code in _WHOLE):
                cut = "the budget was over"
                break
            if not is_there or ended.code > _HIGHEST_OWN_CODE:
                trouble = f"step {len(known.codes) + 1} ended with {ended.code}{_last_line(self._log(known))}"
            else:
                known = replace(known, codes=(*known.codes, ended.code), step_s=max(known.step_s, ended.seconds))
            self._put(known)
        self._close(stage, known, cut=cut, trouble=trouble)

    def _step(self, step: Step, known: StageRecord) -> Ended:
        for name in step.leaves:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        self._log(known).parent.mkdir(exist_ok=True)

        def beat(seconds: float) -> None:
            self._listener.runs(self._put(replace(known, seconds=round(known.seconds + seconds, 1))))

        return run_child(
            step.command,
            lock=self._folder / "stage.lock",
            log=self._log(known),
            limit_s=known.left_s,
            beat=beat,
        )

    def _close(self, stage: Stage, known: StageRecord, *, cut: str, trouble: str) -> None:
        over = replace(known, status=STOPPED if cut or trouble else DONE, open=False)
        judged = stage.judge(over)
        said = "; ".join(part for part in (trouble or cut, judged.sentence) if part)
        self._put(replace(over, reason=said, files=judged.files, verdict=judged.verdict))
        if self.record.validity == "valid" and (trouble or judged.invalid):
            why = f"infrastructure: {stage.name}: {trouble}" if trouble else f"invalid: {judged.invalid}"
            self.record = replace(self.record, validity=why)
        self.record = replace(self.record, key=self.record.key or judged.key)
        self.record.write(self._folder)

    def _put(self, stage: StageRecord) -> StageRecord:
        self.record = self.record.having(stage)
        self.record.write(self._folder)
        return stage

    def _log(self, stage: StageRecord) -> Path:
        return self._folder / "logs" / f"{stage.name}.log"


def _left_out(stage: Stage, reason: str) -> StageRecord:
    return StageRecord(name=stage.name, status=LEFT_OUT, reason=reason, open=False)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {said[:200]}" if said else ""
