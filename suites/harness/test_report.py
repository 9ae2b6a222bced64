"""Reports: what a whole run concludes, its exit code, its files."""

from __future__ import annotations

import io
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from rich.console import Console

from harness.case import Case
from harness.report import Finding, Report, ResultLines, UnitResult, strongest, worst, write_report
from harness.report.table import print_report
from harness.verdict import Outcome
from harness.witness import Place, Witness

CASE = Case.from_token("csa/5.9+16/s3")
WITNESS = Witness(
    property="order_and_offset_change_nothing",
    query=Place(1, 0, 5),
    source=Place(0, 4, 4),
    branch="pool",
    what="logits moved",
    magnitude=0.5,
    bound=0.0,
)


def unit(outcome: Outcome, *, name: str = "order_and_offset_change_nothing", kind: str = "csa") -> UnitResult:
    """A unit of each outcome."""
    finding = Finding(token=CASE.token(), case=CASE.to_json(), witness=WITNESS, first="csa/50.9+70/s3", shrink_cases=9)
    reasons = {Outcome.VACUOUS: {"no window": 7}, Outcome.UNDECIDED: {"ValueError: <&> \x00 \x1b[31m": 7}}
    return UnitResult(
        property_name=name,
        kind=kind,
        outcome=outcome,
        counts={outcome: 7},
        error=None if outcome in reasons else 0.5 if outcome is Outcome.VIOLATED else 2e-13,
        bound=None if outcome in reasons else 0.0 if outcome is Outcome.VIOLATED else 1e-9,
        seconds=1.25,
        reasons=reasons.get(outcome, {}),
        undecided="csa/1.2/s4" if outcome is Outcome.UNDECIDED else None,
        findings=(finding,) if outcome is Outcome.VIOLATED else (),
    )


def report(*units: UnitResult, folder: Path = Path("reports/x"), planned: int | None = None) -> Report:
    """A report of these units."""
    return Report(
        subject="v4model",
        profile="quick",
        seed=None,
        fault=None,
        data=None,
        corpus={"name": "built-in", "digest": "abc", "samples": 400, "tokens": 40000, "tokenizer_vocabulary": 129280},
        jobs=2,
        folder=str(folder),
        started="2026-01-02T03:04:05+00:00",
        seconds=12.3,
        versions={"python": "3.11.7"},
        planned=len(units) if planned is None else planned,
        units=units,
    )


HOLDS, VIOLATED, VACUOUS, UNDECIDED = (
    unit(outcome) for outcome in (Outcome.HOLDS, Outcome.VIOLATED, Outcome.VACUOUS, Outcome.UNDECIDED)
)
OTHER = unit(Outcome.HOLDS, name="padding_changes_nothing")
OTHER_VACUOUS = unit(Outcome.VACUOUS, name="padding_changes_nothing")


@pytest.mark.parametrize(
    ("units", "outcome", "code"),
    [
        ((HOLDS,), Outcome.HOLDS, 0),
        ((HOLDS, replace(VACUOUS, kind="hca")), Outcome.HOLDS, 0),
        ((HOLDS, VIOLATED), Outcome.VIOLATED, 1),
        ((UNDECIDED, OTHER, VIOLATED), Outcome.VIOLATED, 1),
        ((HOLDS, UNDECIDED), Outcome.UNDECIDED, 3),
        ((VACUOUS,), Outcome.VACUOUS, 3),
        ((HOLDS, OTHER_VACUOUS), Outcome.VACUOUS, 3),
        ((), Outcome.VACUOUS, 3),
    ],
)
def test_exit_codes(units: tuple[UnitResult, ...], outcome: Outcome, code: int) -> None:
    assert (report(*units).outcome, report(*units).exit_code) == (outcome, code)


def test_a_part_of_a_run_is_not_a_pass() -> None:
    assert report(HOLDS, planned=2).exit_code == 3


def test_what_is_strongest_and_what_is_worst() -> None:
    assert strongest([]) is Outcome.VACUOUS
    assert strongest([Outcome.VACUOUS, Outcome.HOLDS]) is Outcome.HOLDS
    assert worst([]) == (None, None)
    assert worst([(None, None), (1e-3, 1.0), (1e-10, 1e-9), (0.0, 0.0)]) == (1e-10, 1e-9)
    assert worst([(5.0, 1e-9), (1e-300, 0.0)]) == (1e-300, 0.0)
    assert worst([(3.0, 0.0), (math.nan, 1.0)])[1] == 1.0


def test_headlines() -> None:
    assert report(HOLDS, OTHER).headline == "HOLDS: 2 of 2 properties hold (14 layouts of v4model, 12 s)."
    assert report(VIOLATED, OTHER_VACUOUS).headline == (
        "VIOLATED: 0 of 2 properties hold; violated: order_and_offset_change_nothing; never put to the test: "
        "padding_changes_nothing (14 layouts of v4model, 12 s)."
    )
    planted = replace(report(HOLDS), fault="A1")
    assert "with fault A1 planted" in planted.headline


def test_the_replay_command_says_all_that_matters() -> None:
    plain = report(VIOLATED)
    assert plain.replay_commands(VIOLATED) == (f"harness replay {CASE.token()} --only {VIOLATED.property_name}",)
    assert plain.replay_commands(HOLDS) == ()
    assert "csa/1.2/s4" in plain.replay_commands(UNDECIDED)[0]
    full = replace(plain, subject="my.module:build", fault="A1", data="some text.json")
    words = shlex.split(full.replay_commands(VIOLATED)[0])
    assert words[5:] == ["--subject", "my.module:build", "--fault", "A1", "--data", "some text.json"]


def test_a_case_too_long_for_a_line_is_replayed_from_its_file(tmp_path: Path) -> None:
    case = Case(config="all", lengths=tuple(range(10_000, 10_090)), total=1_000_000, seed=3)
    (short,) = VIOLATED.findings
    both = replace(VIOLATED, findings=(short, replace(short, token=case.token(), case=case.to_json())))
    commands = report(both, folder=tmp_path).replay_commands(both)
    write_report(report(both, folder=tmp_path), tmp_path)
    assert shlex.split(commands[0])[2] == CASE.token()
    file = Path(shlex.split(commands[1])[2])
    assert Case.from_json(json.loads(file.read_text(encoding="utf-8"))) == case
    assert len(list(tmp_path.glob("case-*.json"))) == 2


def test_results_are_on_disk_line_by_line(tmp_path: Path) -> None:
    with ResultLines(tmp_path) as lines:
        for count, result in enumerate((HOLDS, VIOLATED), 1):
            lines.append(result)
            written = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
            assert [json.loads(line)["outcome"] for line in written] == ["HOLDS", "VIOLATED"][:count]
    assert json.loads(written[0])["schema_version"] == 2


def test_the_report_as_json(tmp_path: Path) -> None:
    units = (replace(VIOLATED, error=math.inf), VACUOUS, OTHER)
    write_report(report(*units), tmp_path)
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (data["schema_version"], data["outcome"], data["exit_code"]) == (2, "VIOLATED", 1)
    assert data["corpus"]["tokenizer_vocabulary"] == 129280
    assert [prop["name"] for prop in data["properties"]] == [VIOLATED.property_name, OTHER.property_name]
    first = data["units"][0]
    assert first["error"] == "inf"
    assert first["findings"][0]["sentence"] == WITNESS.sentence()
    assert Witness.from_json(first["findings"][0]["witness"]) == WITNESS
    assert first["replay"] == [f"harness replay {CASE.token()} --only {VIOLATED.property_name}"]
    assert not list(tmp_path.glob("*.partial"))


def test_junit_has_one_testcase_a_unit(tmp_path: Path) -> None:
    units = (replace(HOLDS, kind="all"), VIOLATED, replace(VACUOUS, kind="dense"), replace(UNDECIDED, kind="hca"))
    write_report(report(*units), tmp_path)
    xml = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    (suite,) = list(xml)
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (4, 1, 1, 1)
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (4, 1, 1, 1)
    cases = {case.name: case for case in suite}
    assert {case.classname for case in cases.values()} == {"harness.order_and_offset_change_nothing"}
    assert cases["all"].result == []
    assert cases["all"].time == 1.25
    (failure,) = cases["csa"].result
    assert isinstance(failure, Failure)
    assert failure.message == WITNESS.sentence()
    assert f"harness replay {CASE.token()}" in (failure.text or "")
    (skipped,) = cases["dense"].result
    assert isinstance(skipped, Skipped)
    assert skipped.message == "no window (7 of 7 layouts)"
    (error,) = cases["hca"].result
    assert isinstance(error, Error)
    assert error.message == "ValueError: <&> \ufffd \ufffd[31m (7 of 7 layouts)"
    assert '<property name="corpus_digest" value="abc" />' in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def shown(a_report: Report, *, width: int) -> list[str]:
    """The lines that a terminal of a width shows."""
    text = io.StringIO()
    print_report(Console(file=text, width=width, no_color=True), a_report)
    return text.getvalue().splitlines()


def test_the_table_is_readable_at_80_columns() -> None:
    lines = shown(report(VIOLATED, OTHER, unit(Outcome.VACUOUS, name="every_parameter_has_a_gradient")), width=80)
    row = next(line for line in lines if line.startswith("order_and_offset_change_nothing"))
    assert row.split() == ["order_and_offset_change_nothing", "7", "0/0", "5e-01", "/", "0", "1.2", "VIOLATED"]
    row = next(line for line in lines if line.startswith("padding_changes_nothing"))
    assert row.split() == ["padding_changes_nothing", "7", "7/0", "2e-13", "/", "1e-09", "1.2", "HOLDS"]
    assert "VACUOUS every_parameter_has_a_gradient: no window (7 of 7 layouts)" in lines
    heading = next(index for index, line in enumerate(lines) if line.startswith("property"))
    assert all(len(line) <= 80 for line in lines[heading : heading + 4])


def test_findings_of_one_row_are_told_apart() -> None:
    other = replace(VIOLATED.findings[0], token="csa/7.9/s1", witness=replace(WITNESS, depth=1, branch="shift"))
    lines = shown(report(replace(VIOLATED, findings=(*VIOLATED.findings, other))), width=80)
    told = [line for line in lines if line.startswith(("VIOLATED on csa", "  harness replay"))]
    assert ["through the pool branch" in told[0], "at MTP depth 1" in told[2]] == [True, True]
    assert told[3] == f"  harness replay csa/7.9/s1 --only {VIOLATED.property_name}"


def test_what_is_violated_is_told_with_its_command_on_one_line() -> None:
    lines = shown(report(VIOLATED, UNDECIDED), width=80)
    assert f"VIOLATED on csa: {WITNESS.sentence()}" in lines
    assert f"  harness replay {CASE.token()} --only {VIOLATED.property_name}" in lines
    assert any(line.startswith("UNDECIDED order_and_offset_change_nothing on csa: ValueError") for line in lines)


def test_a_report_is_read_back_from_its_json() -> None:
    found = report(HOLDS, VIOLATED, VACUOUS, UNDECIDED, replace(OTHER, error=math.inf, strata={"one sample": 3}))
    written = json.loads(json.dumps(found.to_json()))
    assert Report.from_json(written).to_json() == found.to_json()
    with pytest.raises(ValueError, match="schema_version"):
        Report.from_json({**written, "schema_version": 1})
