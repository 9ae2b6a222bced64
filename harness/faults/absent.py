"""Rows of the zoo that cannot be planted here, and why."""

from __future__ import annotations

from collections.abc import Mapping

ABSENT: Mapping[str, str] = {
    "A10": "No block is recomputed in the backward pass, so no wrapper could drop what a block was given.",
}
"""By the row's name ("A10"), one sentence: what this project does not have that the defect needs."""
