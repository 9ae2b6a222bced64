"""Rows of the zoo that cannot be planted here, and why."""

from __future__ import annotations

from collections.abc import Mapping

ABSENT: Mapping[str, str] = {}
"""By the row's name ("A10"), one sentence that ends with a full stop: what the defect needs and this project lacks."""
