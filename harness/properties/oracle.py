"""The definition itself: what a pack gives is what a plain reading of the text computes, one sample at a time.

Every other property compares a subject with itself, and a formula that is wrong alone and packed alike passes them all.
This one asks a second implementation that shares no code with any subject and knows nothing of packs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.locate import localised
from harness.properties.measure import rows_of_samples
from harness.properties.read_record import record_of
from harness.properties.rounding import Alike, persisting
from harness.properties.tally import Tally
from harness.subjects.numpy_reading import Reading, ReadingConfig, read
from harness.subjects.record import laid_on
from harness.subjects.support import unsupported_by
from harness.tolerance import ORACLE_F64, TWIN
from harness.verdict import Verdict
from v4model import Pack, PackLayout

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Observation, Subject
    from v4model import V4Config

NAME = "matches_plain_reading"

_THAN = "the plain reading"


@runtime_checkable
class WeightExporter(Protocol):
    """A subject that gives its weights away."""

    def export_weights(self) -> Mapping[str, npt.NDArray[Any]]:
        """Weights, biases and expert tables under transformers' names, and `mtp.{k}.*` for the depths."""
        ...


def _matches(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    if not isinstance(subject, WeightExporter):
        return Verdict.vacuous("the subject exports no weights to read with")
    whole = case.pack(corpus)
    samples = read_samples(whole.layout, config=subject.config)
    pack, tokens = _excerpt(whole, samples)
    readings = _readings(subject.config, subject.export_weights(), pack)
    record = record_of(readings, config=subject.config, layout=pack.layout)
    alike = Alike(subject, case, pack, embeddings=None, record=record)
    itself = torch.arange(pack.layout.total)
    with torch.no_grad(), alike.told(itself):
        observation = subject.observe(pack)
    # Witnesses name places in the case's layout, not in the excerpt's.
    if case.dtype == "float64":
        tally = Tally(NAME, bound=ORACLE_F64, layout=whole.layout)
    else:
        tally = alike.tally(NAME, layout=whole.layout, apart=TWIN)
    alike.judge_choices(tally, tokens=tokens, apart=TWIN)
    _compare_depths(tally, observation, readings, tokens=tokens)
    lacking = unsupported_by(subject)
    read_sums = {name: value for name, value in _read_sums(readings).items() if name not in lacking}
    tally.sums(_sums(observation), read_sums, than=_THAN)
    tally.counts(
        {name: observation.counts[name] for name in _read_counts(readings)}, _read_counts(readings), than=_THAN
    )
    return localised(
        tally.verdict(),
        subject,
        # What is compared is the excerpt; the places are told in the case's layout.
        layout=whole.layout,
        got=lambda recorder: laid_on(
            [(alike.recorded(itself, lambda: recorder.layer_outputs(pack)), tokens)], total=whole.layout.total
        ),
        expected=lambda _: laid_on([(record, tokens)], total=whole.layout.total),
        agree=lambda depth: _read_rows(whole.layout, samples, depth=depth),
        bound=alike.bound_of_rows,
    )


def _read_rows(layout: PackLayout, samples: Sequence[int], *, depth: int) -> Tensor:
    """[T] bool: rows of the samples that were read; what stands where token t + depth is outside is left open."""
    return rows_of_samples(layout, samples) & (layout.ahead(depth) >= 0)


def read_samples(layout: PackLayout, *, config: V4Config) -> list[int]:
    """The samples of a pack to read, the shorter one first: a reading takes milliseconds a token.

    One is the shortest that reaches past the local window, has two windows of every ratio and more rows than the
    indexer picks, or the longest if none does; before it comes the shortest of the others, so that it starts off 0.
    """
    enough = max(config.sliding_window + 1, *(2 * ratio for ratio in config.ratios), (config.index_topk + 1) * 4)
    by_length = sorted(range(layout.num_samples), key=lambda sample: layout.lengths[sample])
    long = next((sample for sample in by_length if layout.lengths[sample] >= enough), by_length[-1])
    others = [sample for sample in by_length if sample != long]
    return [*others[:1], long]


def _excerpt(pack: Pack, samples: Sequence[int]) -> tuple[Pack, Tensor]:
    """Some samples of a pack in a pack of their own, and [T] where its tokens lie in the given one."""
    old = pack.layout
    lengths = [old.lengths[sample] for sample in samples]
    tokens = torch.cat([old.starts[sample] + torch.arange(old.lengths[sample]) for sample in samples])
    layout = PackLayout.from_lengths(lengths)
    return Pack(pack.tokens[tokens], layout=layout, supervised=pack.supervised[tokens]), tokens


def _readings(config: V4Config, weights: Mapping[str, npt.NDArray[Any]], pack: Pack) -> list[Reading]:
    reading_config = ReadingConfig.from_mapping(dataclasses.asdict(config))
    ids, flags = (row.split(pack.layout.lengths) for row in (pack.tokens, pack.supervised))
    return [
        read(reading_config, weights, sample.tolist(), supervised.tolist())
        for sample, supervised in zip(ids, flags, strict=True)
    ]


def _compare_depths(tally: Tally, observation: Observation, readings: Sequence[Reading], *, tokens: Tensor) -> None:
    for depth, given in enumerate(observation.depths):
        heads = [reading.mtp[depth - 1] if depth else reading for reading in readings]
        # The text leaves open what stands at positions whose token t + depth is outside the sample.
        valid = torch.cat([torch.arange(len(head.nll)) + depth < len(head.nll) for head in heads])
        for kind, got, expected in (
            ("logits", given.values, np.concatenate([head.logits for head in heads])),
            ("nll", given.nll, np.concatenate([head.nll for head in heads])),
        ):
            rows = torch.from_numpy(expected)[valid]
            tally.rows(got[valid], rows, tokens=tokens[valid], depth=depth, what=f"{kind} differ from {_THAN}")


def _sums(observation: Observation) -> dict[str, Tensor]:
    """Sums by term: those of single routers ("balance ...") are added."""
    sums: dict[str, Tensor] = {}
    for name, value in observation.sums.items():
        term = name.split(" ", 1)[0]
        sums[term] = sums[term] + value if term in sums else value
    return sums


def _read_sums(readings: Sequence[Reading]) -> dict[str, Tensor]:
    sums = {
        "main": sum(reading.main_nll_sum for reading in readings),
        "balance": sum(reading.balance_sum for reading in readings),
        "kl": sum(reading.kl_sum for reading in readings),
    }
    for depth in range(len(readings[0].mtp)):
        sums[f"mtp{depth + 1}"] = sum(reading.mtp[depth].nll_sum for reading in readings)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in sums.items()}


def _read_counts(readings: Sequence[Reading]) -> dict[str, float]:
    counts = {"main": float(sum(reading.main_count for reading in readings))}
    for depth in range(len(readings[0].mtp)):
        counts[f"mtp{depth + 1}"] = float(sum(reading.mtp[depth].count for reading in readings))
    return counts


register(
    Property(
        NAME,
        "logits, nll and the sums of every term are those of a plain NumPy reading of the definition, sample by sample",
        persisting(_matches),
        rounded=True,
    )
)
