"""What all stages gave, as one page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from v4model.cli_options import gigabytes
from v4model.recipes.one_host.read import Run
from v4model.recipes.one_host.run import Ended
from v4model.train.record import StepRecord

PICTURE = "scaling.png"


def page(*, about: str, ended: Sequence[Ended], runs: Sequence[Run], folder: Path) -> tuple[str, tuple[str, ...]]:
    """The page, and what is wrong in words: a stage that failed, a comparison outside its bound, a missing table."""
    parts = [f"# {about}", ""]
    wrong: list[str] = []
    for stage in ended:
        if stage.stage.kind in ("ranks", "properties"):
            section, problems = {"ranks": _ranks, "properties": _properties}[stage.stage.kind](stage, folder)
            parts += section
            wrong += [f"{stage.stage.name}: {problem}" for problem in problems]
    wrong += [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    parts += ["## Training", "", *_training(runs), "", f"![scaling]({PICTURE})", ""]
    curves = [run for run in runs if run.ended.stage.kind == "curve"]
    if curves:
        parts += ["## The same model on long and on short packs", "", *_curves(curves), ""]
    parts += ["## What failed", "", *(f"- {problem}" for problem in wrong or ["nothing"]), "", "## Commands", ""]
    parts += [line for stage in ended for line in _command(stage)]
    return "\n".join(parts) + "\n", tuple(wrong)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Lines of a Markdown table."""
    heads = list(heads)
    return [_line(heads), _line(["---"] * len(heads)), *(_line(row) for row in rows)]


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _ranks(ended: Ended, folder: Path) -> tuple[list[str], list[str]]:
    report, problems = _json(ended, folder / ended.stage.name / "gpus.json")
    rows = report.get("rows", [])
    problems += [f"{row['dtype']} {row['mesh']} is outside its bounds" for row in rows if not row["holds"]]
    problems += [f"{row['dtype']} {row['mesh']}: {row['error']}" for row in report.get("unfinished", [])]
    heads = "dtype|mesh|nll: several / one|gradients: several / one|weights / bound|norm|loss differs|s a step|holds"
    lines = table(
        heads.split("|"),
        (
            (
                row["dtype"],
                row["mesh"],
                f"{row['nll_several']:.2e} / {row['nll_one']:.2e}",
                f"{row['gradient_several']:.2e} / {row['gradient_one']:.2e}",
                f"{row['weight_error']:.2f}",
                f"{row['norm_error']:.0e}",
                f"{row['loss_difference']:.1e}",
                f"{row['step_seconds']:.2f}",
                "yes" if row["holds"] else "NO",
            )
            for row in rows
        ),
    )
    said = f"{report.get('device')}, {report.get('backend')}, torch {report.get('torch')}, model {report.get('model')}"
    return ["## One step on several ranks against one", "", said, "", *lines, ""], problems


def _properties(ended: Ended, folder: Path) -> tuple[list[str], list[str]]:
    report, problems = _json(ended, folder / ended.stage.name / "report.json")
    units = report.get("units", [])
    rows: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        place = unit["kind"].partition("@")[2]
        rows.setdefault(f"{unit['property']}@{place}", []).append(unit)
    problems += [
        f"{unit['property']} on {unit['kind']}: {unit['outcome']} {'; '.join(unit['reasons'])}"
        for unit in units
        if unit["outcome"] != "HOLDS"
    ]
    lines = table(
        ("property@ranks (p: on processes)", "layouts", "largest error / bound", "holds"),
        (
            (
                name,
                sum(unit["layouts"] for unit in of_row),
                _nearest(of_row),
                "yes" if all(unit["outcome"] == "HOLDS" for unit in of_row) else "NO",
            )
            for name, of_row in rows.items()
        ),
    )
    return ["## Properties on ranks", "", report.get("headline", ""), "", *lines, ""], problems


def _nearest(units: Sequence[dict[str, Any]]) -> str:
    measured = [(float(unit["error"]), float(unit["bound"])) for unit in units if unit["error"] is not None]
    if not measured:
        return "-"
    error, bound = max(measured)
    return f"{error:.0e} / {bound:.0e}"


def _json(ended: Ended, path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a stage left, if that can be read, and what is wrong with how it ended."""
    problems = [f"ended with {ended.code} after {ended.seconds:.0f} s: {ended.last}"] if ended.code else []
    try:
        return json.loads(path.read_text(encoding="utf-8")), problems
    except (OSError, ValueError) as error:
        return {}, [*problems, f"{path.name} cannot be read ({error})"]


def _training(runs: Sequence[Run]) -> list[str]:
    one = {run.ended.stage.kind: run for run in runs if run.training.gpus == 1}
    heads = (
        "run|GPUs|experts|window x packs|steps|loss|gradient norm|peak, GB|s a step|real tokens/s|against one GPU|"
        "step 0 differs from one GPU: loss, norm|bytes over CP a step / formula|over EP / even routing|ended"
    )
    return table(heads.split("|"), (_training_row(run, one.get(run.ended.stage.kind)) for run in runs))


def _training_row(run: Run, one: Run | None) -> Iterator[object]:
    training, records = run.training, run.records
    yield run.name
    yield training.gpus
    yield run.experts
    yield f"{training.window:,} x {training.packs}"
    yield f"{len(records)} of {training.steps}"
    for name in ("loss", "grad_norm"):
        yield f"{getattr(records[0], name):.4f} to {getattr(records[-1], name):.4f}" if records else "-"
    yield gigabytes(run.peak_bytes)
    yield _number(run.step_seconds, ".2f")
    speed, speed_of_one = run.tokens_a_second, None if one is None else one.tokens_a_second
    yield _number(speed, ",.0f")
    yield f"{speed / speed_of_one:.2f}x" if speed and speed_of_one else "-"
    yield _first_step(records[0], one.records[0]) if records and one and one.records else "-"
    steps = max(len(records), 1)
    yield f"{run.cp_bytes // steps:,} / {run.cp_expected // steps:,}"
    yield f"{run.ep_bytes // steps:,} / {run.ep_bytes / run.ep_even:.3f}" if run.ep_even else "-"
    yield "; ".join(run.problems) or "well"


def _first_step(record: StepRecord, one: StepRecord) -> str:
    """Relative differences: before any update the weights are the same."""
    return ", ".join(f"{abs(getattr(record, name) / getattr(one, name) - 1):.1e}" for name in ("loss", "grad_norm"))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _curves(runs: Sequence[Run]) -> list[str]:
    depths = range(max((len(record.mtp) for run in runs for record in run.records), default=0))
    windows = [f"{run.training.window:,} x {run.training.packs}" for run in runs]
    heads = ["step", *(f"main, {window}" for window in windows)]
    heads += [f"MTP {depth + 1}, {window}" for depth in depths for window in windows]
    by_step = [{record.step: record for record in run.records} for run in runs]
    steps = sorted({step for records in by_step for step in records})
    return table(
        heads,
        (
            [
                step,
                *(_number(getattr(records.get(step), "main", None), ".2f") for records in by_step),
                *(
                    _number(records[step].mtp[depth] if step in records else None, ".2f")
                    for depth in depths
                    for records in by_step
                ),
            ]
            for step in steps
        ),
    )


def _command(ended: Ended) -> list[str]:
    about = f" ({ended.stage.about})" if ended.stage.about else ""
    how = f"- {ended.stage.name}{about}: {ended.seconds:.0f} s, ended with {ended.code}"
    return [how, "", f"      {' '.join(ended.stage.command)}", ""]
