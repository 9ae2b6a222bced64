"""Forward and backward passes of a model on packs of several windows, timed: the rows of `v4model bench`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from v4model.bench.timing import Times, matrix_ceiling, timed
from v4model.bench.work import Work, work_of
from v4model.config import V4Config
from v4model.errors import ConfigError, DataError
from v4model.model import V4Model
from v4model.ops.twins import plain_only, runs_fast
from v4model.pack import Pack, PackLayout

SCHEMA = 1
PACKS = ("single", "natural")
TWINS = ("fast", "plain", "transformers")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured: every window with every kind of pack on every twin.

    Args:
        packs: "single" (one sample fills the pack), "natural" (lengths of instruction data, see `natural_layout`).
        twins: "fast" (which is the plain one where no fast one runs), "plain", "transformers": its model on the same
            weights and sample, attention eager; packs of several samples are left out, since it would join them.
        repeats: of a forward and backward pass, after one that does not count.
        recompute, recompute_within: as `V4Model` takes them.
    """

    config: V4Config
    windows: tuple[int, ...]
    packs: tuple[str, ...] = PACKS
    twins: tuple[str, ...] = TWINS
    dtype: torch.dtype = torch.bfloat16
    device: torch.device = torch.device("cpu")
    repeats: int = 3
    recompute: bool = False
    recompute_within: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for names, known, where in ((self.packs, PACKS, "--packs"), (self.twins, TWINS, "--twins")):
            unknown = [name for name in names if name not in known]
            if unknown or not names:
                raise ConfigError(got=repr(",".join(names)), expected=f"some of {', '.join(known)}", where=where)
        if "transformers" in self.twins and self.config.num_nextn_predict_layers:
            raise ConfigError(
                got=f"{self.config.num_nextn_predict_layers} MTP depths",
                expected="num_nextn_predict_layers 0, since transformers has none",
                where="--twins transformers",
            )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One pack on one twin. times and peak_bytes are None where memory did not suffice; peak_bytes also on a CPU.

    fast: whether fast twins ran. share: of the measured ceiling of matrix products.
    """

    window: int
    pack: str
    samples: int
    twin: str
    fast: bool
    work: Work
    times: Times | None = None
    peak_bytes: int | None = None
    share: float | None = None

    @property
    def tera_per_second(self) -> float | None:
        """10^12 counted operations a second."""
        return None if self.times is None else self.work.total / (self.times.median_ms / 1e3) / 1e12


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where it was measured, the ceiling in operations a second, and the rows."""

    device: str
    torch: str
    dtype: str
    ceiling: float
    rows: tuple[Row, ...]


def natural_layout(window: int, *, seed: int) -> PackLayout:
    """Samples whose lengths are log-normal (median 490 tokens, as of long instruction data), until `window` is full."""
    generator = torch.Generator().manual_seed(seed)
    lengths: list[int] = []
    while sum(lengths) < window:
        length = int(math.exp(6.2 + float(torch.randn((), generator=generator))))
        lengths.append(min(max(length, 8), window - sum(lengths)))
    return PackLayout.from_lengths(lengths)


def bench(plan: Plan, *, done: Callable[[Row], None] | None = None) -> Report:
    """Measures every row of the plan, one model for all of them."""
    model = V4Model(
        plan.config,
        dtype=plan.dtype,
        device=plan.device,
        seed=plan.seed,
        recompute=plan.recompute,
        recompute_within=plan.recompute_within,
    )
    ceiling = matrix_ceiling(device=plan.device, dtype=plan.dtype)
    rows = []
    for window in plan.windows:
        for kind in plan.packs:
            layout = PackLayout.single(window) if kind == "single" else natural_layout(window, seed=plan.seed)
            for twin in plan.twins:
                if twin == "transformers" and layout.num_samples > 1:
                    continue
                rows.append(_row(model, plan, layout, kind=kind, twin=twin, ceiling=ceiling))
                if done is not None:
                    done(rows[-1])
    cuda = plan.device.type == "cuda"
    return Report(
        device=torch.cuda.get_device_name(plan.device) if cuda else "CPU",
        torch=torch.__version__,
        dtype=str(plan.dtype).removeprefix("torch."),
        ceiling=ceiling,
        rows=tuple(rows),
    )


def save_report(report: Report, path: Path, *, about: dict[str, Any]) -> None:
    """As JSON. Raises DataError."""
    rows = [asdict(row) | {"tera_per_second": row.tera_per_second} for row in report.rows]
    content = {"schema": SCHEMA, **about, **asdict(report), "rows": rows}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    except OSError as error:
        raise DataError(got=str(error.strerror), expected="a file that can be written", where=str(path)) from error


def _row(model: V4Model, plan: Plan, layout: PackLayout, *, kind: str, twin: str, ceiling: float) -> Row:
    work = work_of(plan.config, layout)
    generator = torch.Generator().manual_seed(plan.seed)
    pack = Pack(torch.randint(plan.config.vocab_size, (layout.total,), generator=generator), layout=layout)
    if twin == "transformers":
        from v4model.bench.reference import reference_step

        fast = False
        times, peak = _measured(partial(reference_step, model, pack), plan)
    else:
        with plain_only() if twin == "plain" else nullcontext():
            fast = runs_fast(next(model.parameters()))
            times, peak = _measured(partial(_step_of, model, pack), plan)
    share = None if times is None else work.total / (times.median_ms / 1e3) / ceiling
    return Row(
        window=layout.total,
        pack=kind,
        samples=layout.num_samples,
        twin=twin,
        fast=fast,
        work=work,
        times=times,
        peak_bytes=peak,
        share=share,
    )


def _step_of(model: V4Model, pack: Pack) -> Callable[[], Tensor]:
    def step() -> Tensor:
        # Gradients are made anew, as in a training step that does not accumulate them.
        model.zero_grad(set_to_none=True)
        out = model(pack)
        out.loss.backward()
        loss: Tensor = out.loss
        return loss

    return step


def _measured(made: Callable[[], Callable[[], Tensor]], plan: Plan) -> tuple[Times | None, int | None]:
    """Times and peak memory of the step that `made` gives, both None where memory does not suffice."""
    cuda = plan.device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        times = timed(made(), device=plan.device, repeats=plan.repeats)
    except torch.OutOfMemoryError:
        return None, None
    return times, torch.cuda.max_memory_allocated() if cuda else None
