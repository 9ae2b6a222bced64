"""One kill matrix of several that asked different rows. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.faults.absent import ABSENT
from harness.matrix.result import SCHEMA_VERSION, Cell, Matrix, Parity, Row


def read_matrix(data: Mapping[str, Any]) -> Matrix:
    """Read what `Matrix.to_json` wrote; raises ValueError for another version, KeyError for a missing field."""
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version {data['schema_version']}, not {SCHEMA_VERSION}")
    return Matrix(
        subject=data["subject"],
        profile=data["profile"],
        started=data["started"],
        seconds=data["seconds"],
        properties=data["properties"],
        rows=[_row(row) for row in data["rows"]],
        whole=data["whole"],
        absent=data["absent"],
    )


def joined(matrices: Sequence[Matrix], *, order: Sequence[str]) -> Matrix:
    """All their rows, in the order of names given; whole if no name of it is missing."""
    by_name = {row.name: row for matrix in matrices for row in matrix.rows}
    whole = all(name in by_name for name in order)
    return replace(
        matrices[0],
        started=min(matrix.started for matrix in matrices),
        seconds=sum(matrix.seconds for matrix in matrices),
        rows=[by_name[name] for name in order if name in by_name],
        whole=whole,
        absent=ABSENT if whole else {},
    )


def _row(data: Mapping[str, Any]) -> Row:
    plain = {name: value for name, value in data.items() if name not in ("cells", "parity", "parity_here")}
    return Row(
        **plain,
        cells={name: Cell(**cell) for name, cell in data["cells"].items()},
        parity=_parity(data["parity"]),
        parity_here=_parity(data["parity_here"]),
    )


def _parity(data: Mapping[str, Any] | None) -> Parity | None:
    """Null is a number that is infinite or missing: beyond any bound."""
    if data is None:
        return None
    loss, cosine = data["loss"], data["cosine"]
    return Parity(loss=math.inf if loss is None else loss, cosine=math.nan if cosine is None else cosine)
