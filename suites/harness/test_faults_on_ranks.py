"""Faults of ranks in a run: on their own ranks unless others are asked for, in this process, listed with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import cli
from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.engine import PROFILES, Plan, decide, run
from harness.faults.e1_zig_zag_order import zig_zag
from harness.faults.e12_boundaries_from_local_positions import cut_at_ranks
from harness.faults.registry import load_faults
from harness.strategies import PackSize
from harness.verdict import Outcome
from suites.harness import fakes
from v4model import PackLayout
from v4model.pack.shard import shard_of

_SMALL = PackSize(min_samples=2, max_samples=3, min_tokens=20, max_tokens=48)
QUICK = replace(PROFILES["quick"], shrink_cases=0, size=_SMALL)


def _plan(*properties: str, fault: str | None, cp: tuple[int, ...] = (), profile: str = "quick") -> Plan:
    return Plan(
        properties=properties,
        subject="v4model",
        profile=QUICK if profile == "quick" else PROFILES[profile],
        corpus=fakes.corpus(),
        fault=fault,
        cp=cp,
    )


def test_a_fault_of_ranks_runs_on_its_own_ranks() -> None:
    names = ("query_sees_no_future", "cp_matches_one_rank", "packed_equals_alone")
    rows = _plan(*names, fault="E3").rows
    assert {(kind, row.ranks) for kind, row in rows} == {(kind, ranks) for kind in ("all", "csa") for ranks in (2, 4)}
    assert {row.property_name for _, row in rows} == {"query_sees_no_future", "cp_matches_one_rank"}
    assert {row.ranks for _, row in _plan(*names, fault="E3", cp=(8,)).rows} == {8}


def test_processes_are_left_out_where_a_fault_is_planted() -> None:
    assert any(row.processes for _, row in _plan("cp_matches_one_rank", fault=None, cp=(2,)).rows)
    for fault in ("E3", "A1"):
        rows = _plan("cp_matches_one_rank", fault=fault, cp=(2,)).rows
        assert rows
        assert not any(row.processes for _, row in rows)


def test_rows_that_share_their_runs_are_asked_of_the_same_layouts() -> None:
    plan = _plan("cp_matches_one_rank", "no_rank_waits", "query_sees_no_future", fault=None, cp=(1, 2))
    asked = [[(row.property_name, row.place) for row in unit.rows] for unit in plan.units() if unit.kind == "csa"]
    equality, processes, others = asked
    assert equality == [(name, at) for name in ("cp_matches_one_rank", "no_rank_waits") for at in ("@1", "@2")]
    assert processes == [("cp_matches_one_rank", "@2p"), ("no_rank_waits", "@2p")]
    assert others == [("query_sees_no_future", "@2")]


def test_other_faults_run_as_ever() -> None:
    assert {row.ranks for _, row in _plan("packed_equals_alone", "cp_matches_one_rank", fault="A3").rows} == {None}


def test_no_stratum_is_wanted_where_a_fault_is_planted() -> None:
    assert _plan("cp_matches_one_rank", fault=None, cp=(4,), profile="ci").wanted_strata
    assert _plan("cp_matches_one_rank", fault="E3", profile="ci").wanted_strata == ()


def test_a_fault_on_processes_is_undecided() -> None:
    case = Case.from_token("csa@2p/20/s1")
    prop, factory = find_property("cp_matches_one_rank"), find_subject("v4model")
    verdict = decide(prop, factory, case, fakes.corpus(), fault=find_fault("E3"))
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reason == "fault E3 can be planted on ranks in one process, not on others"


def test_a_run_finds_a_fault_of_ranks_and_says_where_it_was_planted(tmp_path: Path) -> None:
    report = run(_plan("no_rank_waits", fault="E10", cp=(2,)), folder=tmp_path)
    assert report.exit_code == 1
    assert "with fault E10 planted on ranks of one process" in report.headline
    for unit in report.units:
        assert unit.findings, unit.kind
        assert " rows of rank " in unit.findings[0].witness.what
        token = unit.findings[0].token
        assert report.replay_commands(unit)[0] == f"harness replay {token} --only no_rank_waits --fault E10"


def test_a_property_that_does_not_speak_of_ranks_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.corpus.builtin_corpus", fakes.corpus)
    assert cli.run_cli(["run", "--fault", "E3", "--only", "packed_equals_alone"]) == 2
    assert "got fault E3 and packed_equals_alone; expected a kind, or ranks, that both have" in capsys.readouterr().err


def test_the_list_tells_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert "(caught by cp_matches_one_rank on 3, 4 ranks; " in lines["E5"]
    assert "ranks" not in lines["C2"]


def test_variants_of_a_fault_stand_behind_it() -> None:
    names = [fault.name for fault in load_faults()]
    for name, variant in (("D12", "D12b"), ("E2", "E2b"), ("E9", "E9b"), ("E16", "E16b")):
        assert names.index(variant) == names.index(name) + 1
    assert names.index("E9b") < names.index("E10") < names.index("F2")


# -- the mechanisms ----------------------------------------------------------------------------------------------------


def test_zig_zag_gives_every_rank_a_chunk_from_either_end() -> None:
    assert zig_zag(size=4, ranks=2).tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
    # Five tokens a rank: chunks of 3, 3, 2, 2.
    assert zig_zag(size=5, ranks=2).tolist() == [0, 1, 2, 8, 9, 3, 4, 5, 6, 7]
    assert zig_zag(size=1, ranks=4).tolist() == [0, 1, 2, 3]


def test_boundaries_of_local_positions_part_a_sample_at_every_cut_inside() -> None:
    layout = PackLayout.from_lengths([3, 9], slots=[4, 9], total=16)
    cut = cut_at_ranks(shard_of(layout, rank=1, ranks=4))
    assert (cut.starts, cut.lengths, cut.total) == ((0, 4, 8, 12), (3, 4, 4, 1), 16)
    assert cut_at_ranks(shard_of(layout, rank=0, ranks=1)) == layout
