"""`matches_plain_reading`: what it reads, what it says when it cannot, and that its witness names the case's places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pytest

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.properties.oracle import NAME, read_samples
from harness.subjects.protocol import Observation
from harness.subjects.v4model_one_rank import V4OneRank, build
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from v4model import Pack


def _checked(subject: Any, token: str) -> Verdict:
    return decide(find_property(NAME), lambda *_: subject, Case.from_token(token), fakes.corpus(), fault=None)


def _subject(token: str) -> V4OneRank:
    case = Case.from_token(token)
    return build(case.v4config(), case.torch_dtype(), case.seed)


@pytest.mark.parametrize("token", ["all/11.5.34/s1", "csa/6.22/s2", "hca/9p2.17/s3", "dense/1.1/s4", "all/1/s5"])
def test_the_healthy_model_matches(token: str) -> None:
    verdict = _checked(_subject(token), token)
    assert verdict.outcome is Outcome.HOLDS, verdict
    assert verdict.error is not None
    assert verdict.error < 1e-12


def test_one_sample_is_long_enough_for_every_branch_and_a_short_one_stands_before_it() -> None:
    case = Case.from_token("all/50.40.3.31.7/s0")
    # Two windows of ratio 16 take 32 tokens.
    assert read_samples(case.layout(), config=case.v4config()) == [2, 1]
    short = Case.from_token("all/5.3.9/s0")
    assert read_samples(short.layout(), config=short.v4config()) == [1, 2]
    assert read_samples(Case.from_token("all/4/s0").layout(), config=case.v4config()) == [0]


@dataclass(frozen=True)
class _Wrong:
    """The model with one weight other than the one it exports."""

    inner: V4OneRank
    name: str = "wrong"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def observe(self, pack: Pack) -> Observation:
        return self.inner.observe(pack)

    def export_weights(self) -> Mapping[str, npt.NDArray[Any]]:
        weights = dict(self.inner.export_weights())
        weights["mtp.1.norm.weight"] = weights["mtp.1.norm.weight"] * (1 + 1e-6)
        return weights


def test_a_witness_names_a_place_of_the_case() -> None:
    token = "all/50.40p5.3.31.7/s0"
    witness = _checked(_Wrong(_subject(token)), token).witness
    assert witness is not None
    assert (witness.depth, witness.what) == (2, "logits differ from the plain reading")
    assert witness.query is not None
    layout = Case.from_token(token).layout()
    assert witness.query.sample == layout.sample[witness.query.token]
    assert witness.query.position == layout.position[witness.query.token]
    assert witness.query.sample in (1, 2)


def test_a_subject_without_weights_makes_it_vacuous() -> None:
    case = Case.from_token("all/5.9/s1")
    verdict = _checked(fakes.healthy(case.v4config(), case.torch_dtype(), 1), "all/5.9/s1")
    assert (verdict.outcome, verdict.reason) == (Outcome.VACUOUS, "the subject exports no weights to read with")


def test_another_dtype_leaves_it_undecided() -> None:
    token = "dense/5.9/s1/float32"
    assert _checked(_subject(token), token).outcome is Outcome.UNDECIDED
