"""The commands `harness peers` and `harness explain --issue`: a small table, files beside it, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from suites.repo import tree

PEER = ["peers", "--only", "megatron-core-roll", "--property", "labels_stay_inside", "--jobs", "1"]
TOKEN = "csa,balance_coef=0.0,compress_ratios=4:4,index_kl_coef=0.0,index_n_heads=32,num_nextn_predict_layers=0/1.4/s0"
BY_POSITIONS = ["--subject", "harness.subjects.peer_transformers:ByPositions"]
EXPLAIN = ["explain", TOKEN, "--only", "query_sees_only_its_sample", "--issue"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tree.ROOT))


def test_a_table_its_baseline_and_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([*PEER, "--record", "as it was found"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^megatron-core-roll +# +\d", told, re.MULTILINE), told
    assert "harness replay " in told
    table = json.loads(Path("reports/peers/peers.json").read_text(encoding="utf-8"))
    (peer,) = table["peers"]
    assert peer["cells"]["labels_stay_inside"]["outcome"] == "VIOLATED"
    (folder,) = Path("baselines/peers").iterdir()
    assert folder.name == f"megatron-core-roll-{peer['version']}"
    lines = folder / "exceptions.txt"
    # A verdict that its own version's baseline does not have gates.
    text = lines.read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if "\tharness." not in line]
    lines.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    assert cli.run_cli([*PEER, "--json"]) == 1
    (peer,) = json.loads(capsys.readouterr().out)["peers"]
    assert any("breaks labels_stay_inside on csa" in change for change in peer["changes"])


def test_a_peer_without_its_environment_says_how_to_make_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["peers", "--only", "nemo_automodel-packed"]) == 3
    told = capsys.readouterr().out
    assert "UNDECIDED: nemo_automodel is not installed; harness peers --make nemo_automodel-0.7.0" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["peers", "--only", "theirs"], "unknown peer 'theirs'"),
        (["peers", "--make", "theirs"], "unknown environment 'theirs'"),
        (["peers", "--record", " "], "an empty --record"),
        (["explain", "csa/1.4/s0", "--issue", "--only", "packed_equals_alone"], "expected a public model"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(words) == 2
    assert said in capsys.readouterr().err


def test_an_issue_has_versions_both_sides_and_a_script_that_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.run_cli([*EXPLAIN, *BY_POSITIONS]) == 1
    told = capsys.readouterr().out
    assert "**Expected.** No sample in a pack depends on another one." in told
    assert "read sample 0" in told
    assert re.search(r"\*\*Versions\.\*\* transformers \d\S*, torch \d", told)
    (script,) = re.findall(r"```python\n(.*)```", told, re.DOTALL)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    run = subprocess.run([sys.executable, "-I", "script.py"], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 1, run.stderr


def test_a_case_that_violates_nothing_makes_no_issue(capsys: pytest.CaptureFixture[str]) -> None:
    alone = ["--subject", "harness.subjects.peer_transformers:OneAtATime"]
    assert cli.run_cli([*EXPLAIN, *alone]) == 2
    assert "got a case that violates nothing" in capsys.readouterr().err
