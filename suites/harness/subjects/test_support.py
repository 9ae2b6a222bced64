"""What a subject declares or raises: cases kept clear of it, verdicts that are UNDECIDED, runs that are no pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import PROFILES, Plan, decide, run
from harness.errors import UsageError
from harness.subjects.protocol import SubjectFactory, Unsupported
from harness.subjects.support import ASPECTS, aspect_of, kept_clear, left_out, refusal, unsupported_by
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.harness.subjects import toy
from v4model import Pack

ALONE = "packed_equals_alone"
CLEARED = "balance_coef=0.0,index_kl_coef=0.0"


def verdict_of(factory: SubjectFactory, token: str, name: str = ALONE) -> Verdict:
    """Of a property on a case."""
    return decide(find_property(name), factory, Case.from_token(token), fakes.corpus(), fault=None)


@pytest.mark.parametrize(
    ("aspect", "token", "clear"),
    [
        ("mtp", "all/5/s1", "all,compress_ratios=0:4:16:4,num_nextn_predict_layers=0/5/s1"),
        ("mtp", "csa,index_topk=2/5/s1", "csa,compress_ratios=4:4,index_topk=2,num_nextn_predict_layers=0/5/s1"),
        ("balance", "all/5/s1", "all,balance_coef=0.0/5/s1"),
        ("kl", "all/5/s1", "all,index_kl_coef=0.0/5/s1"),
        ("packing", "all/5p2.9+20/s1", "all/5/s1"),
        ("padding", "all/5p2.9+20/s1", "all/5.9/s1"),
        ("interior padding", "all/5p2.9+20/s1", "all/5.9+20/s1"),
        ("ties", "all,index_topk=2/5.33/s1", "all,index_topk=64/5.33/s1"),
        ("hc_mult!=2", "all/5/s1", "all,hc_mult=2/5/s1"),
    ],
)
def test_a_case_is_kept_clear_of_what_is_declared(aspect: str, token: str, clear: str) -> None:
    case, declared = Case.from_token(token), {aspect: "for a reason"}
    assert refusal(case, declared) == f"{aspect_of(aspect).about}: for a reason"
    cleared = kept_clear(case, declared)
    assert cleared.token() == clear
    assert refusal(cleared, declared) is None
    assert kept_clear(cleared, declared) == cleared


@pytest.mark.parametrize(("aspect", "token"), [("ranks", "all@2/5.9/s1"), ("float64", "all/5.9/s1")])
def test_what_no_case_can_do_without_is_refused(aspect: str, token: str) -> None:
    case = Case.from_token(token)
    assert kept_clear(case, {aspect: "for a reason"}) == case
    assert refusal(case, {aspect: "for a reason"}) is not None


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (["mtp"], "unsupported of type list; expected a mapping"),
        ({"mpt": "none"}, "unsupported aspect 'mpt'; expected one of mtp, balance"),
        ({"hc_mul!=4": "built in"}, "unsupported aspect 'hc_mul!=4'"),
        ({"mtp": ""}, "reason '' for 'mtp'; expected a clause"),
        ({"mtp": None}, "reason None for 'mtp'"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_told(declared: object, words: str) -> None:
    class Subject:
        unsupported = declared

    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as caught:
        unsupported_by(Subject)
    assert "Subject" in str(caught.value)


def test_every_aspect_reads_as_a_clause() -> None:
    assert all(aspect.about and not aspect.about.endswith(".") for aspect in ASPECTS.values())


def test_a_case_that_needs_it_is_undecided_with_the_reason() -> None:
    verdict = verdict_of(toy.WithoutMtp, f"all,{CLEARED}/5.9/s1")
    assert verdict.outcome is Outcome.UNDECIDED
    cleared = kept_clear(Case.from_token("all/5.9/s1"), toy.WithoutMtp.unsupported)
    told = "trunk toy does not support it: MTP depths: the toy predicts one token"
    assert verdict.reason == f"{told}; ask {cleared.token()} instead"
    assert verdict_of(toy.WithoutMtp, cleared.token()).outcome is Outcome.HOLDS


class NoEmbeddings(toy.Toy):
    """Refuses embeddings, half of the cases of packed_equals_alone."""

    def embeddings(self, pack: Pack) -> Tensor:
        """Never."""
        del pack
        raise Unsupported("ids only")


def test_what_a_subject_raises_is_its_reason() -> None:
    token = f"all,{CLEARED}/5.9/s1"
    verdict = verdict_of(NoEmbeddings, token, "query_sees_only_its_sample")
    assert (verdict.outcome, verdict.reason) == (Outcome.UNDECIDED, "toy does not support it: ids only")


@pytest.mark.parametrize("name", [ALONE, "order_and_offset_change_nothing", "query_sees_only_its_sample"])
def test_a_depth_that_is_not_given_cannot_hold(name: str) -> None:
    verdict = verdict_of(fakes.healthy, "all/5.9/s1", name)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "logits of 1 depths, the configuration has 3" in verdict.reason


def test_a_depth_that_is_not_given_hides_no_violation() -> None:
    assert verdict_of(fakes.leaking, "all/5.9/s1").outcome is Outcome.VIOLATED


def test_a_term_that_is_not_given_is_named() -> None:
    with pytest.raises(Unsupported, match="it gives no 'kl', only 'main'"):
        fakes.healthy(Case.from_token("all/5/s1").v4config(), torch.float64, 0).observe(
            Case.from_token("all/5/s1").pack(fakes.corpus())
        ).sums["kl"]


def test_ranks_that_a_subject_does_not_run_on_are_undecided() -> None:
    verdict = verdict_of(toy.Toy, f"all,{CLEARED}@2/5.9/s1", "cp_matches_one_rank")
    assert (verdict.outcome, verdict.reason) == (
        Outcome.UNDECIDED,
        "toy does not support it: it runs on no ranks (no method on_ranks)",
    )


def small_run(factory: str, folder: Path, *names: str) -> Mapping[str, Outcome]:
    """Outcomes by property of a short run, and "" for the whole."""
    profile = replace(PROFILES["quick"], name="small", cases_per_kind=4, shrink_cases=20, most_vacuous=1.0)
    subject = f"{toy.__name__}:{factory}"
    report = run(Plan(properties=names, subject=subject, profile=profile, corpus=fakes.corpus()), folder=folder)
    return {"": report.outcome, **{group.name: group.outcome for group in report.summaries}}


def test_a_run_that_leaves_something_out_is_no_pass(tmp_path: Path) -> None:
    found = small_run("WithoutMtp", tmp_path, ALONE, "query_sees_no_future")
    assert found == {"": Outcome.UNDECIDED, ALONE: Outcome.HOLDS, "query_sees_no_future": Outcome.HOLDS}
    assert "MTP depths (the toy predicts one token)" in (tmp_path / "report.json").read_text(encoding="utf-8")


def test_a_run_says_what_it_leaves_out() -> None:
    assert left_out({"mtp": "none", "fixed shapes": "loops", "float64": "float32 only"}) == (
        "MTP depths (none)",
        "float64 (float32 only)",
    )


def test_a_run_on_ranks_is_kept_clear_too(tmp_path: Path) -> None:
    profile = replace(PROFILES["quick"], name="small", ranked_per_kind=2, processes_per_kind=1)
    names = ("cp_matches_one_rank",)
    plan = Plan(properties=names, subject=f"{toy.__name__}:Toy", profile=profile, corpus=fakes.corpus(), cp=(2,))
    report = run(plan, folder=tmp_path)
    assert {reason for unit in report.units for reason in unit.reasons} == {
        "toy does not support it: it runs on no ranks (no method on_ranks)"
    }


def test_rows_without_a_dtype_in_common_are_undecided_case_by_case(tmp_path: Path) -> None:
    profile = replace(PROFILES["quick"], name="small", ranked_others_per_kind=2, meshes_per_kind=2)
    names = ("query_sees_no_future", "ep_matches_one_rank", "pp_matches_one_rank", "cp_matches_one_rank")
    plan = Plan(properties=names, subject=f"{toy.__name__}:Single", profile=profile, corpus=fakes.corpus(), cp=(2,))
    report = run(plan, folder=tmp_path)
    assert {unit.outcome for unit in report.units} == {Outcome.UNDECIDED}
    assert all("toy does not support it" in reason for unit in report.units for reason in unit.reasons)


class Versioned(toy.Toy):
    """Says what it is made of."""

    versions: Mapping[str, str] = {"toys": "1.2"}


def test_a_report_names_the_subjects_versions(tmp_path: Path) -> None:
    profile = replace(PROFILES["quick"], name="small", cases_per_kind=1)
    plan = Plan(properties=(ALONE,), subject=f"{__name__}:Versioned", profile=profile, corpus=fakes.corpus())
    versions = run(plan, folder=tmp_path).versions
    assert versions["toys of the subject"] == "1.2"
    assert {"python", "torch"} <= versions.keys()


def test_a_run_finds_what_leaks_all_the_same(tmp_path: Path) -> None:
    assert small_run("Leaking", tmp_path, ALONE)[""] is Outcome.VIOLATED


def test_one_sample_in_float32_is_asked_what_it_can_be(tmp_path: Path) -> None:
    names = ("labels_stay_inside", "gradients_are_derivatives", "query_sees_no_future", "padding_changes_nothing")
    found = small_run("Single", tmp_path, *names)
    assert [found[name] for name in names] == [
        Outcome.HOLDS,
        Outcome.UNDECIDED,  # differences in float32 say nothing
        Outcome.HOLDS,
        Outcome.UNDECIDED,  # it makes padding of its own
    ]
