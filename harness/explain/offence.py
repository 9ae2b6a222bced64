"""The cell of the sample by sample map that a witness is about, and its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.witness import Place, Reading

if TYPE_CHECKING:
    from harness.witness import Witness


@dataclass(frozen=True, kw_only=True)
class Offence:
    """query: the sample whose result is wrong. source: the sample it reads, -1 for padding. name: both in words."""

    query: int
    source: int
    name: str


def offence_of(witness: Witness) -> Offence | None:
    """None if the witness is not about a token of a sample."""
    query = witness.query
    if query is None or query.sample < 0:
        return None
    source = read_by(witness)
    if source is None:
        return Offence(query=query.sample, source=query.sample, name=f"sample {query.sample} is computed otherwise")
    return Offence(query=query.sample, source=source.sample, name=_name(query, source, witness))


def read_by(witness: Witness) -> Place | None:
    """The token that the witness's query read, or the first of the pooled row that its first wrong row read."""
    if witness.source is not None or witness.row is None:
        return witness.source
    return witness.row.first


def _name(query: Place, source: Place, witness: Witness) -> str:
    if source.sample < 0:
        return f"sample {query.sample} reads padding"
    if source.sample != query.sample:
        return f"sample {query.sample} reads sample {source.sample}"
    if witness.source is not None and source.position > query.position:
        return f"sample {query.sample} reads its own future"
    if witness.row is not None and witness.row.reading is Reading.MISSED:
        return f"sample {query.sample} misses its own rows"
    return f"sample {query.sample} is computed otherwise"
