"""Scripts for other projects' trackers run by themselves, and their status says whether it is still so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.case import Case
from harness.catalogue import find_subject
from harness.errors import UsageError
from harness.subjects.peer_reproductions import reproduction
from suites.harness.subjects.peers import NEMO, needs_nemo

BY_POSITIONS = "harness.subjects.peer_transformers:ByPositions"


def run(script: str, folder: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """In a folder of its own, where nothing of this repository can be imported."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    return subprocess.run([python, "script.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def written(package: str, token: str, subject: str) -> str:
    script = reproduction(package, Case.from_token(token), find_subject(subject))
    assert "harness" not in script
    assert "v4model" not in script
    return script


@pytest.mark.parametrize(("kind", "status"), [("csa", 1), ("hca", 1), ("dense", 0)])
def test_transformers_packed_by_position_ids(kind: str, status: int, tmp_path: Path) -> None:
    found = run(written("transformers", f"{kind}/5.9/s0", BY_POSITIONS), tmp_path)
    assert (found.returncode, "packed against alone" in found.stdout) == (status, True), found.stderr


def test_megatron_core_shows_the_roll(tmp_path: Path) -> None:
    found = run(written("megatron-core", "csa/3p1.2p2/s0", "harness.subjects.peer_megatron_core:build"), tmp_path)
    assert found.returncode == 1, found.stderr
    assert "got      [101, 102, 0, 200, 0, 201, 0, 0]" in found.stdout
    assert "expected [101, 102, 0, 0, 201, 0, 0, 0]" in found.stdout


@needs_nemo
def test_nemo_automodel_shows_all_three(tmp_path: Path) -> None:
    script = written("nemo_automodel", "csa/1.7/s0", "harness.subjects.peer_nemo_automodel:AsShipped")
    found = run(script, tmp_path, python=str(NEMO.python))
    assert found.returncode == 1, found.stderr
    assert "moved by its own later token" in found.stdout
    assert "depth 1, others moved by other ids" in found.stdout


def test_another_package_has_none() -> None:
    with pytest.raises(UsageError, match="got package torch; expected one of transformers"):
        reproduction("torch", Case.from_token("csa/1/s0"), object())
