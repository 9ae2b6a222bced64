"""`harness explain`: the text, the picture and the regression test of a case."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.image import imread

from harness import cli
from harness.case import Case
from harness.catalogue import find_fault, find_property
from harness.errors import UsageError
from harness.explain import Explanation, draw, explain, lines, to_json, write_test
from harness.explain.maps import sample_map, token_map
from harness.explain.offence import offence_of
from harness.subjects.protocol import Subject
from harness.subjects.v4model_one_rank import V4OneRank, build
from harness.witness import Place, Reading, Row, Witness
from suites.harness import fakes
from suites.repo import tree
from v4model import V4Config

SAMPLE = "query_sees_only_its_sample"
FUTURE = "query_sees_no_future"
CP = "cp_matches_one_rank"
ALONE = "packed_equals_alone"

# Fault, property, case, and the name of the cell that it is about.
CASES = {
    "A1": (SAMPLE, "dense/5.9/s0", "sample 1 reads sample 0"),
    "B1": (SAMPLE, "hca/5.9/s0", "sample 1 reads sample 0"),
    "C1": (SAMPLE, "csa/5.12/s0", "sample 1 reads sample 0"),
    "C3": (SAMPLE, "csa/5.12/s0", "sample 1 reads sample 0"),
    "C7": (FUTURE, "hca/3.17/s1", "sample 1 reads its own future"),
    "C16": (FUTURE, "csa/1.7/s0", "sample 1 reads its own future"),
    "D1": (SAMPLE, "dense/3.4.2/s0", "sample 1 reads sample 2"),
    "E3": (CP, "csa@4/24/s1", "sample 0 is computed otherwise"),
    "E5": (CP, "dense@4/16/s1", "sample 0 misses its own rows"),
}


@cache
def explained(fault: str) -> Explanation:
    name, token, _ = CASES[fault]
    return explain([find_property(name)], build, Case.from_token(token), fakes.corpus(), fault=find_fault(fault))


@cache
def healthy() -> Explanation:
    properties = [find_property(name) for name in (SAMPLE, ALONE)]
    return explain(properties, build, Case.from_token("all/5p2.9+20/s1"), fakes.corpus(), fault=None)


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", CASES)
def test_the_offending_cell_is_named_and_coloured(fault: str) -> None:
    found = explained(fault)
    offence = found.offence
    assert offence is not None
    assert offence.name == CASES[fault][2]
    assert found.samples is not None
    assert float(found.samples[offence.query, offence.source]) > 0


def test_a_healthy_map_has_its_diagonal_only() -> None:
    found = healthy()
    assert found.samples is not None
    assert found.samples.shape == (2, 3)
    assert bool((found.samples > 0).eq(torch.eye(2, 3) > 0).all())
    assert (found.offence, found.witness, found.comparison) == (None, None, None)


def test_the_first_violated_property_is_explained() -> None:
    names = ["labels_stay_inside", SAMPLE, ALONE]
    found = explain(
        [find_property(name) for name in names], build, Case.from_token("dense/5.9/s0"), fakes.corpus(),
        fault=find_fault("B1"),
    )  # fmt: skip
    assert [name for name, _ in found.verdicts] == names[:2]
    assert found.comparison is not None
    parting = found.comparison.parting()
    assert parting is not None
    assert parting[0] == "layers.0.self_attn"


def _built(token: str) -> tuple[V4OneRank, Case]:
    case = Case.from_token(token)
    return build(case.v4config(), case.torch_dtype(), case.seed), case


def test_tokens_depend_on_the_tokens_up_to_themselves() -> None:
    subject, case = _built("dense/6.5/s1")
    pack = case.pack(fakes.corpus())
    for depth, kind, ahead in ((0, "logits", 0), (0, "nll", 1), (1, "logits", 1)):
        found = token_map(subject, case, pack, queries=range(6), sources=range(6), depth=depth, kind=kind)
        for query in range(6 - ahead):
            seen = [source for source in range(6) if float(found.values[query, source]) > 0]
            assert seen == [source for source in range(6) if found.allowed(query, source)]
            assert seen[-1] == query + ahead


def test_the_map_of_samples_shows_who_reads_whom() -> None:
    subject, case = _built("dense/6.5.4/s1")
    with find_fault("B1").apply(subject):
        values = sample_map(subject, case, case.pack(fakes.corpus()))
    # A window of 8 in one dense layer and MTP: the sample before, and the one before that.
    assert (values[1] > 0).tolist() == [True, True, False, False]
    assert (values[0] > 0).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("source", "row", "name"),
    [
        (Place(-1, 0, 9), None, "sample 1 reads padding"),
        (Place(0, 2, 2), None, "sample 1 reads sample 0"),
        (None, Row(first=Place(0, 2, 2), last=Place(0, 2, 2)), "sample 1 reads sample 0"),
        (None, Row(first=None, last=None), "sample 1 is computed otherwise"),
        (None, None, "sample 1 is computed otherwise"),
        (Place(1, 5, 8), None, "sample 1 reads its own future"),
        (None, Row(first=Place(1, 0, 3), last=Place(1, 0, 3), reading=Reading.MISSED), "sample 1 misses its own rows"),
    ],
)
def test_offences_have_names(source: Place | None, row: Row | None, name: str) -> None:
    witness = Witness(
        property="p",
        query=Place(1, 2, 5),
        source=source,
        at=Place(1, 2, 5),
        row=row,
        what="moved",
        magnitude=1,
        bound=0,
    )
    offence = offence_of(witness)
    assert offence is not None
    assert offence.name == name


def test_a_witness_without_a_token_offends_in_no_cell() -> None:
    assert offence_of(Witness(property="p", what="moved", magnitude=1, bound=0)) is None


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", CASES)
def test_the_text_fits_a_terminal_and_says_where_it_parts(fault: str) -> None:
    told = list(lines(explained(fault)))
    assert max(map(len, told)) <= 80
    witness = explained(fault).witness
    assert witness is not None
    assert witness.sentence() in " ".join(" ".join(told).split())
    (first,) = [line for line in told if line.endswith("<- first")]
    assert witness.layer is not None
    assert first.split()[0].startswith(witness.layer)
    # What runs before is the same in both.
    before = told[told.index("Two runs compared, in the order of execution:") + 1 : told.index(first)]
    assert all("agrees" in line or "pooled rows moved" in line for line in before)


def test_a_healthy_case_says_so() -> None:
    told = list(lines(healthy()))
    assert told[:2] == [f"HOLDS     {SAMPLE}", f"HOLDS     {ALONE}"]
    assert "no property is violated" in " ".join(told)


def test_what_could_not_be_decided_is_not_passed_over() -> None:
    case = Case.from_token("dense/5.9/s0/float32")
    found = explain([find_property(ALONE)], build, case, fakes.corpus(), fault=None)
    assert found.summary == "no property is violated, 1 could not be decided"
    assert found.summary in " ".join(lines(found))


def test_json_has_a_version_and_everything() -> None:
    data = json.loads(json.dumps(to_json(explained("C16")), allow_nan=False))
    assert data["schema_version"] == 1
    assert data["token"] == "csa/1.7/s0"
    assert data["offence"] == {"query": 1, "source": 1, "name": "sample 1 reads its own future"}
    assert len(data["samples"]) == 2
    wrong = [part["name"] for part in data["parts"] if part["wrong_tokens"]]
    assert wrong[0].startswith("layers.0.self_attn")


# -- picture -----------------------------------------------------------------------------------------------------------


def _texts(path: Path) -> str:
    return " ".join(
        "".join(node.itertext()) for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    )


@pytest.mark.parametrize("fault", CASES)
def test_a_picture_names_samples_and_the_offending_cell(fault: str, tmp_path: Path) -> None:
    draw(explained(fault), tmp_path / "it.svg")
    texts = _texts(tmp_path / "it.svg")
    found = explained(fault)
    for sample in range(len(found.case.lengths)):
        assert f"sample {sample}" in texts
    assert f"offending cell: {CASES[fault][2]}" in texts
    assert found.case.token() in texts
    for rank in range(found.case.ranks or 0):
        assert f"rank {rank}" in texts


@pytest.mark.parametrize(
    "token", ["dense/7/s1", "dense/" + "3.10.4.11." * 10 + "5/s2", "all/9.22p3.17.4.40p2.6+120/s2"]
)
def test_a_healthy_picture_of_any_size(token: str, tmp_path: Path) -> None:
    found = explain([find_property(ALONE)], build, Case.from_token(token), fakes.corpus(), fault=None)
    draw(found, tmp_path / "it.svg")
    texts = _texts(tmp_path / "it.svg")
    assert "no property is violated" in texts
    assert "only the diagonal may be coloured" in texts


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg", "one.png", "two.png"):
        draw(explained("C16"), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert imread(tmp_path / "one.png").shape == (960, 1440, 4)


def test_a_case_that_cannot_run_is_drawn_without_maps(tmp_path: Path) -> None:
    found = explain(
        [find_property("no_rank_waits")],
        build,
        Case.from_token("csa@4/9.22/s1"),
        fakes.corpus(),
        fault=find_fault("E10"),
    )
    assert found.no_map.startswith("RankError")
    draw(found, tmp_path / "it.svg")
    texts = _texts(tmp_path / "it.svg")
    assert "No map: RankError" in texts
    assert "sample 1" in texts


# -- regression test ---------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(fault: str) -> Path:
        path = tmp_path / f"test_{fault.lower()}.py"
        write_test(path, explained(fault), subject="v4model", data=None, fault=fault)
        return path

    return write


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["load_corpus"] = lambda _data: fakes.corpus()
    return module


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.mark.parametrize("fault", ["C16", "D1", "E5"])
def test_a_written_test_is_green_until_the_fault_is_back(
    fault: str, written: Callable[[str], Path], stack: ExitStack
) -> None:
    module = _module(written(fault))
    test = getattr(module, f"test_{CASES[fault][0]}")
    test()

    def faulty(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
        subject = build(config, dtype, seed)
        stack.enter_context(find_fault(fault).apply(subject))
        return subject

    module.__dict__["find_subject"] = lambda _name: faulty
    with pytest.raises(AssertionError, match=CASES[fault][0]):
        test()


def test_a_written_test_is_ready_to_commit(written: Callable[[str], Path]) -> None:
    path = written("C16")
    witness = explained("C16").witness
    assert witness is not None
    assert witness.sentence() in " ".join((_module(path).__doc__ or "").split())
    config = ["--config", str(tree.ROOT / "pyproject.toml")]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *config, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_test_replaces_no_file_and_is_one_that_pytest_collects(written: Callable[[str], Path]) -> None:
    path = written("C16")
    before = path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="got a file that exists; expected a new one"):
        written("C16")
    assert path.read_text(encoding="utf-8") == before
    with pytest.raises(UsageError, match=r"got case.py; expected a file named test_"):
        write_test(path.with_name("case.py"), explained("C16"), subject="v4model", data=None, fault=None)


# -- command line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def _small_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("harness.corpus.builtin_corpus", fakes.corpus)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_small_text")
def test_the_command_writes_a_picture_and_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "csa/1.7/s0", "--fault", "C16", "--only", FUTURE, "--test", "test_it.py"]
    assert cli.run_cli(command) == 1
    out = capsys.readouterr().out
    assert f"VIOLATED  {FUTURE}" in out
    picture = Path(out.splitlines()[-1].removeprefix("Picture: "))
    assert "sample 1 reads its own future" in _texts(picture)
    assert Path("test_it.py").exists()
    # Nothing is computed before what cannot be written is refused.
    assert cli.run_cli(command) == 2
    assert "expected a new one" in capsys.readouterr().err


@pytest.mark.usefixtures("_small_text")
def test_a_healthy_case_gives_0_and_json_is_all_that_json_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["explain", "csa/1.7/s0", "--only", FUTURE, "--output", "it.png", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["picture"], data["verdicts"][0]["outcome"]) == ("it.png", "HOLDS")
    assert Path("it.png").exists()


@pytest.mark.usefixtures("_small_text")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--output", "it.jpg"], "got it.jpg; expected a name that ends in .svg or .png; where: --output"),
        (["--test", "it.py"], "got it.py; expected a file named test_<what went wrong>.py; where: --test"),
        (["--output", "reports.svg/it.svg"], "expected a file to write to; where: reports.svg"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "reports.svg").write_text("a file where a folder is needed", encoding="utf-8")
    assert cli.run_cli(["explain", "dense/3/s0", "--only", FUTURE, *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert len(err.splitlines()) == 1
