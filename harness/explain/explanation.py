"""Checks a case and gathers what explains the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from harness.engine.decide import decide, describe_error, on_ranks
from harness.explain.maps import TokenMap, sample_map, token_map
from harness.explain.offence import Offence, offence_of, read_by
from harness.properties.locate import comparisons_are_kept
from harness.properties.measure import tokens_of
from harness.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.faults.registry import Fault
    from harness.properties import Property
    from harness.properties.parting import Comparison
    from harness.subjects.protocol import Subject, SubjectFactory
    from harness.witness import Witness
    from v4model import PackLayout

SCHEMA_VERSION = 1
LARGEST = 1.7976931348623157e308
"""Stands for an infinite change, which JSON cannot say."""

MOST_TOKENS = 32
"""Rows and columns of a token map at most: more cannot be read in a picture."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """verdicts: of the properties that were asked, up to the first violated one.

    comparison: the runs that the witness was located by, None if nothing was recorded. samples [S, S + 1]: what every
    sample depends on, padding last. tokens: the same token by token, around the query and what it read. Both are None,
    and `no_map` says why, where the subject cannot run the case.
    """

    case: Case
    verdicts: tuple[tuple[str, Verdict], ...]
    comparison: Comparison | None
    samples: Tensor | None
    tokens: TokenMap | None
    no_map: str = ""

    @property
    def witness(self) -> Witness | None:
        """Of the violated property, if one is."""
        return self.verdicts[-1][1].witness

    @property
    def summary(self) -> str:
        """What came out, in a few words."""
        name, last = self.verdicts[-1]
        if last.witness is not None:
            return f"{name} is {last.outcome.value}"
        undecided = sum(verdict.outcome is Outcome.UNDECIDED for _, verdict in self.verdicts)
        return "no property is violated" + (f", {undecided} could not be decided" if undecided else "")

    @property
    def offence(self) -> Offence | None:
        """The offending cell."""
        return None if self.witness is None else offence_of(self.witness)


def explain(
    properties: Sequence[Property], factory: SubjectFactory, case: Case, corpus: Corpus, *, fault: Fault | None
) -> Explanation:
    """Ask the properties one after another until one is violated, then look at what depends on what."""
    verdicts = []
    comparison = None
    for prop in properties:
        with comparisons_are_kept() as kept:
            verdict = decide(prop, factory, case, corpus, fault=fault)
        verdicts.append((prop.name, verdict))
        if verdict.outcome is Outcome.VIOLATED:
            comparison = kept[-1] if kept else None
            break
    samples = tokens = None
    no_map = ""
    try:
        subject = on_ranks(factory(case.v4config(), case.torch_dtype(), case.seed), case)
        with nullcontext() if fault is None else fault.apply(subject):
            samples, tokens = _maps(subject, case, corpus, verdicts[-1][1].witness)
    except Exception as error:  # the subject is someone else's code; what it raises is why there is no map
        no_map = describe_error(error)
    return Explanation(
        case=case, verdicts=tuple(verdicts), comparison=comparison, samples=samples, tokens=tokens, no_map=no_map
    )


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as plain values, with the schema's version.

    `parts` are the recorded tables with the tokens whose rows are wrong, in the order of execution; `samples` the map.
    """
    comparison, offence, samples = explanation.comparison, explanation.offence, explanation.samples
    parts = [] if comparison is None else [
        {"name": name, "wrong_tokens": tokens_of(comparison.wrong(name)).tolist()} for name in comparison.names
    ]  # fmt: skip
    return {
        "schema_version": SCHEMA_VERSION,
        "token": explanation.case.token(),
        "verdicts": [{"property": name, **verdict.to_json()} for name, verdict in explanation.verdicts],
        "parts": parts,
        "offence": None if offence is None else asdict(offence),
        "samples": None if samples is None else samples.nan_to_num(posinf=LARGEST).tolist(),
        "no_map": explanation.no_map,
    }


def _maps(subject: Subject, case: Case, corpus: Corpus, witness: Witness | None) -> tuple[Tensor, TokenMap]:
    pack = case.pack(corpus)
    query = witness.query if witness is not None else None
    source = read_by(witness) if witness is not None else None
    longest = pack.layout.starts[pack.layout.lengths.index(max(pack.layout.lengths))]
    at = longest if query is None else query.token
    read = at if source is None else source.token
    tokens = token_map(
        subject,
        case,
        pack,
        queries=_around(pack.layout, at),
        sources=_around(pack.layout, read),
        depth=0 if witness is None else witness.depth,
        kind="nll" if witness is not None and witness.branch in ("loss", "label") else "logits",
    )
    return sample_map(subject, case, pack), tokens


def _around(layout: PackLayout, token: int) -> range:
    """The tokens of the sample (or padding) of a token, at most MOST_TOKENS around it."""
    same = (layout.sample == layout.sample[token]).tolist()
    first = last = token
    while first > 0 and same[first - 1]:
        first -= 1
    while last + 1 < layout.total and same[last + 1]:
        last += 1
    start = max(first, min(token - MOST_TOKENS // 2, last + 1 - MOST_TOKENS))
    return range(start, min(start + MOST_TOKENS, last + 1))
