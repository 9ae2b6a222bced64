"""What a training stage left, next to what was to be expected of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from v4model.cli_options import chosen_config
from v4model.data import PackedData, Recipe, load_packs, load_tokenizer, open_source
from v4model.parallel.volume import context_bytes, expert_bytes_if_even
from v4model.recipes.one_host.run import Ended
from v4model.recipes.one_host.stages import Training
from v4model.train.record import StepRecord, read_records
from v4model.train.settings import DTYPES

_FULL_SHARE = 0.9
"""Of the largest step's real tokens: the last pack of a corpus is not full, and its step is shorter."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training stage: its records, and problems in words (none: it did what it should).

    experts: of the model. cp_bytes and cp_expected: sent over context groups in all its steps, counted and by formula;
    ep_bytes and ep_even: over expert groups, counted, and as if routers were even.
    """

    ended: Ended
    training: Training
    experts: int
    records: Sequence[StepRecord]
    cp_bytes: int
    cp_expected: int
    ep_bytes: int
    ep_even: float
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """The stage's."""
        return self.ended.stage.name

    @property
    def warm(self) -> Sequence[StepRecord]:
        """Steps behind the first, which compiles and allocates; all there are if that is the only one."""
        return self.records[1:] or self.records

    @property
    def step_seconds(self) -> float | None:
        """Median of the full steps."""
        if not self.warm:
            return None
        most = max(record.real_tokens for record in self.warm)
        return statistics.median(record.seconds for record in self.warm if record.real_tokens >= _FULL_SHARE * most)

    @property
    def tokens_a_second(self) -> float | None:
        """Real tokens of all warm steps over their seconds."""
        seconds = sum(record.seconds for record in self.warm)
        return sum(record.real_tokens for record in self.warm) / seconds if seconds else None

    @property
    def peak_bytes(self) -> int | None:
        """The fullest card's."""
        return max((record.peak_bytes for record in self.records if record.peak_bytes is not None), default=None)


def read_run(ended: Ended, folder: Path) -> Run:
    """A training stage of a folder; a run that left no records has problems, not an error."""
    training = ended.stage.training
    assert training is not None, f"{ended.stage.name} trains nothing"
    config = chosen_config(training.preset, None, [f"{name}={value}" for name, value in training.changes.items()])
    log = folder / ended.stage.name / "log.jsonl"
    records = read_records(log) if log.exists() else []
    data = _packs(training.data, training.tokenizer, training.mode, training.window, training.cp, training.seed)
    dtype, problems, expected, even = DTYPES[training.dtype], [], 0, 0.0
    for record in records:
        layouts = [data.pack(number).layout for number in record.packs]
        of_step = context_bytes(config, layouts, ranks=training.cp, stages=1, dtype=dtype, recompute=training.recompute)
        if record.cp_bytes != of_step:
            problems.append(f"step {record.step} sent {record.cp_bytes:,} bytes over context groups, not {of_step:,}")
        tokens = sum(-(-layout.total // training.cp) * training.cp for layout in layouts)
        expected += of_step
        even += expert_bytes_if_even(
            config, tokens=tokens, ranks=training.ep, dtype=dtype, recompute=training.recompute
        )
    return Run(
        ended=ended,
        training=training,
        experts=config.n_routed_experts,
        records=records,
        cp_bytes=sum(record.cp_bytes for record in records),
        cp_expected=expected,
        ep_bytes=sum(record.ep_bytes for record in records),
        ep_even=even,
        problems=(*_problems(ended, records, steps=training.steps), *problems),
    )


def _problems(ended: Ended, records: Sequence[StepRecord], *, steps: int) -> list[str]:
    found = []
    if ended.code:
        found.append(f"ended with {ended.code} after {ended.seconds:.0f} s: {ended.last or 'nothing was said'}")
    if [record.step for record in records] != list(range(steps)):
        found.append(f"{len(records)} of {steps} steps")
    odd = [record.step for record in records if not (math.isfinite(record.loss) and math.isfinite(record.grad_norm))]
    return [*found, *(f"step {step} is no number" for step in odd)]


@lru_cache(maxsize=32)
def _packs(data: str | None, tokenizer: str, mode: str, window: int, ranks: int, seed: int) -> PackedData:
    """As `v4model train` makes them."""
    recipe = Recipe(
        window=window,
        mode=mode,  # type: ignore[arg-type]  # the recipe refuses names that it does not know
        ranks=ranks,
        seed=seed,
        too_long="truncate",
        unsupervised="drop",
    )
    source = open_source(None if data is None else Path(data))
    return load_packs(source, tokenizer=load_tokenizer(tokenizer), recipe=recipe)


def longest_sample(data: str | None, *, window: int) -> int:
    """Tokens of the longest sample that is trained on."""
    packs = _packs(data, "v4", "best-fit", window, 1, 0)
    return max(max(packs.pack(number).layout.lengths) for number in range(len(packs)))
