"""Habits that every file of the repository keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.repo import checks, tree


def _findings(files: tuple[Path, ...], check: object) -> list[str]:
    assert files, "no file was found to check"
    assert callable(check)
    return [f"{path}: {finding}" for path in files for finding in check(tree.syntax(path))]


def test_only_command_line_entry_points_read_the_environment() -> None:
    files = tuple(p for p in tree.python_files("v4model", "harness") if p.stem.partition("_")[0] != "cli")
    assert _findings(files, checks.environment_reads) == []


def test_every_skip_says_why() -> None:
    assert _findings((*tree.python_files("suites"), Path("conftest.py")), checks.skips_without_reason) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    files = tree.text_files()
    assert Path("Makefile") in files
    assert Path(".ci/run") in files
    assert [f"{path}: {found}" for path in files for found in checks.machine_paths(tree.text(path))] == []


@pytest.mark.parametrize("top", ["v4model", "harness", "suites"])
def test_every_folder_with_python_is_a_package(top: str) -> None:
    # Import contracts and packaging both overlook a folder without __init__.py.
    folders = {path.parent for path in tree.python_files(top)}
    missing = sorted(str(folder) for folder in folders if not (tree.ROOT / folder / "__init__.py").exists())
    assert missing == []
