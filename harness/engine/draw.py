"""The cases of a unit, drawn by Hypothesis with every setting explicit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.internal.constants_ast import Constants

from harness.case import Case
from harness.engine.decide import describe_error
from harness.engine.row import Unit


@dataclass(frozen=True)
class Draw:
    """`layouts` cases of a unit for a seed; the same ones in every run."""

    unit: Unit
    cases: st.SearchStrategy[Case]
    layouts: int
    seed: int | None

    def run(self, probe: Callable[[Case], None]) -> str | None:
        """Call `probe` with each case; returns what kept the draw from its end."""

        @hypothesis.seed(self._number())
        @self._settings()
        @hypothesis.given(self.cases)
        def draw(case: Case) -> None:
            probe(case)

        try:
            with _independent_draws():
                draw()
        except hypothesis.errors.HypothesisException as error:
            return describe_error(error)
        return None

    def _number(self) -> int:
        # Left to itself Hypothesis would seed from the source text of `probe`: one draw for all units, and another one
        # after any edit of it.
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{self.unit.label}".encode()).digest()[:8], "big")

    def _settings(self) -> hypothesis.settings:
        """Every setting, so that neither Hypothesis's own CI profile nor an environment variable changes a run."""
        return hypothesis.settings(
            max_examples=self.layouts,
            derandomize=False,
            database=None,
            verbosity=Verbosity.quiet,
            phases=(Phase.generate,),
            stateful_step_count=1,
            report_multiple_bugs=False,
            suppress_health_check=tuple(HealthCheck),
            deadline=None,
            print_blob=False,
            backend="hypothesis",
        )


@contextmanager
def _independent_draws() -> Iterator[None]:
    """Within, a seed draws the same cases in every process, each for itself. No setting of Hypothesis does that.

    It mixes numbers that it finds in the source of the local modules imported so far into what it draws: another
    process, or another order of tests, would check other cases. And it copies parts of a case over others, which makes
    one case in eight the smallest one or one seen before.
    """
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        with (
            mock.patch.object(providers, "_get_local_constants", return_value=Constants()),
            mock.patch.object(ConjectureRunner, "generate_mutations_from"),
        ):
            yield
    finally:
        providers.CONSTANTS_CACHE.cache.clear()
