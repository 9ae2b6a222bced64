"""Bounds follow what a subject declares, print as such, and still tell a leak from rounding."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.engine.decide import decided_in
from harness.engine.draw import Draw
from harness.engine.profiles import find_profile
from harness.engine.row import Row, Unit
from harness.engine.unit import Work, cases_of
from harness.properties.bounds import bounds_of, unless_rounding_decides
from harness.subjects.adapter import Outputs
from harness.subjects.protocol import SubjectFactory
from harness.tolerance import EXACT, REORDERED_F32, REORDERED_F64
from harness.verdict import Outcome, Verdict
from harness.witness import Place, Witness
from suites.harness import fakes
from suites.harness.subjects import toy
from v4model import Pack

CONFIG = "all,balance_coef=0.0,index_kl_coef=0.0"
CASE = Case.from_token(f"{CONFIG}/5.9.12+30/s1")
SAMPLE, FUTURE = "query_sees_only_its_sample", "query_sees_no_future"


def declaring(base: type[toy.Toy], **declared: str) -> type[toy.Toy]:
    """The toy with more declared; `_` stands for a blank."""
    extra = {name.replace("_", " "): reason for name, reason in declared.items()}
    return type("Declaring", (base,), {"unsupported": {**base.unsupported, **extra}})


class Rounding(toy.Toy):
    """Sums in another order when any id of the pack changes, as experts do whose shapes follow routing."""

    size = 1e-13

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """The toy's logits, all a little larger or smaller."""
        rows = self._looked_up(pack) if embeddings is None else embeddings
        sign = -1 if float(rows.detach().nan_to_num().sum().abs() * 1e6) % 2 < 1 else 1
        return Outputs(logits=[x * (1 + sign * self.size) for x in super().forward(pack, embeddings).logits])


class LeakingAndRounding(Rounding):
    """Both."""

    reads_before = 1


def verdict_of(name: str, factory: SubjectFactory, case: Case = CASE) -> Verdict:
    """Of a property on the case."""
    return decide(find_property(name), factory, case, fakes.corpus(), fault=None)


@pytest.mark.parametrize(
    ("declared", "dtype", "reordered", "still"),
    [
        ({}, "float64", REORDERED_F64, EXACT),
        ({}, "float32", REORDERED_F32, EXACT),
        ({"float64_throughout": "islands"}, "float64", REORDERED_F32, EXACT),
        ({"fixed_shapes": "loops"}, "float64", REORDERED_F64, REORDERED_F64),
        ({"fixed_shapes": "loops", "float64_throughout": "islands"}, "float64", REORDERED_F32, REORDERED_F32),
    ],
)
def test_bounds_are_those_declared(declared: Mapping[str, str], dtype: str, reordered: float, still: float) -> None:
    case = Case.from_token(f"{CONFIG}/5/s1/{dtype}")
    subject = declaring(toy.Toy, **declared)(case.v4config(), case.torch_dtype(), 1)
    bounds = bounds_of(subject, case)
    assert (bounds.reordered, bounds.still) == (reordered, still)


@pytest.mark.parametrize("name", [SAMPLE, FUTURE])
def test_rounding_that_moves_bits_is_violated_unless_declared(name: str) -> None:
    assert verdict_of(name, Rounding).outcome is Outcome.VIOLATED
    verdict = verdict_of(name, declaring(Rounding, fixed_shapes="loops"))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.bound == REORDERED_F64
    assert verdict.error is not None
    assert 0 < verdict.error < 1e-12


def test_a_leak_is_found_all_the_same() -> None:
    verdict = verdict_of(SAMPLE, declaring(LeakingAndRounding, fixed_shapes="loops"))
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness is not None
    assert verdict.witness.bound > 0
    assert verdict.witness.magnitude > 1e3 * verdict.witness.bound


@pytest.mark.parametrize(
    "name", ["packed_equals_alone", "order_and_offset_change_nothing", "padding_changes_nothing", "labels_stay_inside"]
)
def test_without_float64_a_property_is_asked_in_float32_and_prints_its_bound(name: str) -> None:
    case = Case.from_token(f"{CASE.token()}/float32")
    verdict = verdict_of(name, declaring(toy.Toy, float64="kernels"), case)
    assert (verdict.outcome, verdict.bound) == (Outcome.HOLDS, REORDERED_F32)
    with_float64 = verdict_of(name, toy.Toy, case)
    assert with_float64.outcome is Outcome.UNDECIDED
    assert f"{name} is decided in float64, not in float32" in with_float64.reason


@pytest.mark.parametrize(
    ("lacking", "dtypes"),
    [
        ({}, ("float64",)),
        ({"float64"}, ("float32",)),
        ({"float64", "float32"}, ("bfloat16",)),
        ({"float64", "float32", "bfloat16"}, ("float64",)),
    ],
)
def test_a_rounded_property_is_asked_in_the_widest_dtype_that_there_is(
    lacking: set[str], dtypes: tuple[str, ...]
) -> None:
    unsupported = dict.fromkeys(lacking, "kernels")
    assert decided_in(find_property("packed_equals_alone"), unsupported) == dtypes
    assert decided_in(find_property("gradients_are_derivatives"), unsupported) == ("float64",)
    assert decided_in(find_property("cache_gives_what_was_asked"), unsupported) == dtypes


def test_no_fixed_bound_tells_a_defect_from_rounding_in_bfloat16() -> None:
    case = Case.from_token(f"{CASE.token()}/bfloat16")
    factory = declaring(toy.Toy, float64="kernels", float32="kernels")
    factory.unsupported = {name: reason for name, reason in factory.unsupported.items() if name != "bfloat16"}
    assert verdict_of(SAMPLE, factory, case).outcome is Outcome.HOLDS
    verdict = verdict_of("packed_equals_alone", factory, case)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "bounds have to be computed, and it is not Measurable" in verdict.reason


def test_a_leak_is_found_in_float32() -> None:
    case = Case.from_token(f"{CASE.token()}/float32")
    for name in ("packed_equals_alone", SAMPLE):
        assert verdict_of(name, declaring(toy.Leaking, float64="kernels"), case).outcome is Outcome.VIOLATED


def test_differences_say_nothing_in_float32() -> None:
    case = Case.from_token(f"{CASE.token()}/float32")
    verdict = verdict_of("gradients_are_derivatives", declaring(toy.Toy, float64="kernels"), case)
    assert verdict.outcome is Outcome.UNDECIDED


class Choosing(toy.Toy):
    """Token 7 chooses between two answers by a sum that is 0 up to rounding."""

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """The toy's logits; those of token 7 may change their sign."""
        found = super().forward(pack, embeddings)
        rows = self._looked_up(pack) if embeddings is None else embeddings
        chosen = torch.where((rows - self._looked_up(pack)).detach().sum(1) > 0, -1.0, 1.0)
        chosen[torch.arange(len(chosen)) != 7] = 1.0
        return Outputs(logits=[x * chosen[:, None] for x in found.logits])


@pytest.mark.parametrize(
    ("token", "declared", "outcome"),
    [
        (7, {"float64_throughout": "islands"}, Outcome.UNDECIDED),
        (8, {"float64_throughout": "islands"}, Outcome.VIOLATED),
        (7, {}, Outcome.VIOLATED),
    ],
)
def test_a_row_that_rounding_decides_proves_nothing(token: int, declared: Mapping[str, str], outcome: Outcome) -> None:
    subject = declaring(Choosing, **declared)(CASE.v4config(), torch.float64, 1)
    place = Place(1, token - 5, token)
    witness = Witness(property="any", query=place, what="logits differ", magnitude=1.0, bound=1e-9)
    verdict = unless_rounding_decides(Verdict.violated(witness), subject, CASE, CASE.pack(fakes.corpus()))
    assert verdict.outcome is outcome
    if outcome is Outcome.UNDECIDED:
        assert "rounding decides what sample 1, position 2 (token 7) gives" in verdict.reason


def test_properties_asked_together_take_a_dtype_that_those_have_that_can_be_decided() -> None:
    names = ("packed_equals_alone", SAMPLE, "gradients_are_derivatives")
    unit = Unit("all", tuple(Row(name) for name in names))
    work = Work(
        subject=f"{toy.__name__}:Single", profile=find_profile("quick"), corpus=fakes.corpus(), seed=1, fault=None
    )
    drawn: list[Case] = []
    cases = cases_of(work, unit, tuple(find_property(name) for name in names))
    assert Draw(unit, cases, layouts=5, seed=1).run(drawn.append) is None
    assert {case.dtype for case in drawn} == {"float32"}
