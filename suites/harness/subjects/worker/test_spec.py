"""What names a worker: a line, or a file whose every key is checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.subjects.worker.spec import DEADLINE_S, WorkerSpec, is_worker, read_spec

PYTHON = sys.executable


def test_a_line_names_a_worker() -> None:
    name = f"worker:{PYTHON}:mine.for_harness:Mine"
    assert is_worker(name)
    assert read_spec(name) == WorkerSpec(name=name, python=PYTHON, factory="mine.for_harness:Mine")


def test_a_file_names_a_worker(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(PYTHON)
    file = tmp_path / "mine.toml"
    file.write_text(
        'python = "bin/python"\nfactory = "mine:Mine"\npath = ["src"]\nenvironment = {A = "1"}\ndeadline_s = 5\n',
        encoding="utf-8",
    )
    assert is_worker(str(file))
    spec = read_spec(str(file))
    assert spec.python == str(tmp_path / "bin" / "python")
    assert (spec.paths, spec.environment) == ((str(tmp_path / "src"),), (("A", "1"),))
    assert (spec.factory, spec.deadline_s, spec.threads) == ("mine:Mine", 5.0, 1)


def test_what_a_file_leaves_out_has_a_default(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'python = "{PYTHON}"\nfactory = "mine:Mine"\n', encoding="utf-8")
    assert read_spec(str(file)) == WorkerSpec(name=str(file), python=PYTHON, factory="mine:Mine")
    assert read_spec(str(file)).deadline_s == DEADLINE_S


@pytest.mark.parametrize("name", ["v4model", "module:factory", "toml"])
def test_other_names_are_no_workers(name: str) -> None:
    assert not is_worker(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no python and no factory"),
        ('factory = "a:b"', "got no python;"),
        ("python = ", "Invalid value"),
        ('python = "python3"\nfactory = 3', "factory = 3; expected a text"),
        ('python = "python3"\nfactory = "a:b"\npaths = []', "key 'paths'; expected one of python, factory, path"),
        ('python = "python3"\nfactory = "a:b"\npath = "src"', "path = 'src'; expected a list of texts"),
        ('python = "python3"\nfactory = "a:b"\npath = [1]', "path = .1.; expected texts"),
        ('python = "python3"\nfactory = "a:b"\nenvironment = {A = 1}', "expected texts"),
        ('python = "python3"\nfactory = "a:b"\ndeadline_s = 0', "deadline_s = 0; expected more than 0"),
        (
            'python = "python3"\nfactory = "a:b"\ndeadline_s = inf',
            "deadline_s = inf; expected .*, at most 86,400",
        ),
        ('python = "python3"\nfactory = "a:b"\nthreads = true', "threads = True; expected a whole number"),
        ('python = "bin/absent"\nfactory = "a:b"', "no program .*bin/absent; expected a Python interpreter"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=words) as caught:
        read_spec(str(file))
    assert "\n" not in str(caught.value)
    assert caught.value.where == f"subject {file}"
