"""What is declared is used, what is used is declared, and every declared package has an exact pin."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from suites.repo import checks, tree

OWN = {"v4model", "harness", "suites", "conftest"}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _project() -> dict[str, dict[str, list[str]]]:
    metadata = tomllib.loads(tree.text("pyproject.toml"))["project"]
    return {"runtime": {"": metadata["dependencies"]}, "extras": metadata["optional-dependencies"]}


def _names(requirements: list[str]) -> set[str]:
    return {_canonical(re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0]) for requirement in requirements}


def _runtime() -> set[str]:
    return _names(_project()["runtime"][""])


def _extra(name: str) -> set[str]:
    return _names(_project()["extras"][name])


def _imported(files: tuple[Path, ...]) -> dict[str, set[str]]:
    """Distribution name -> the files that import one of its modules."""
    distributions = packages_distributions()
    found: dict[str, set[str]] = {}
    for path in files:
        for module, _ in checks.imported_modules(tree.syntax(path)):
            top = module.split(".")[0]
            if top not in OWN and top not in sys.stdlib_module_names:
                for distribution in distributions.get(top, [top]):
                    found.setdefault(_canonical(distribution), set()).add(str(path))
    return found


def _named_in_strings(files: tuple[Path, ...]) -> set[str]:
    """Canonical form of every string constant: a package read for its data files is named, not imported."""
    return {
        _canonical(node.value)
        for path in files
        for node in ast.walk(tree.syntax(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40
    }


def test_code_imports_only_declared_packages() -> None:
    for distribution, files in _imported(tree.python_files("v4model", "harness")).items():
        if distribution in _extra("fast"):
            # Comes with torch's CUDA wheels; nothing outside may need it, and no test runs without saying so.
            assert all(name.startswith("v4model/ops/fast/") for name in files), (distribution, sorted(files))
        elif distribution not in _runtime():
            # A reference implementation is an extra; only the subject that wraps it may import it, and the file that
            # times it. So is a reader of another library's format, in the one file that reads it, and pytest, in the
            # plugin that it loads.
            assert distribution in _extra("test"), f"{distribution} is not declared; imported by {sorted(files)}"
            alone = {"v4model/data/folder.py"} if distribution in _extra("hf") else set()
            alone |= {"harness/pytest_results.py", "harness/pytest_kept.py"} if distribution == "pytest" else set()
            alone |= {"v4model/bench/reference.py"} if distribution == "transformers" else set()
            subjects = {name for name in files if name.startswith("harness/subjects/")}
            assert files <= alone | subjects, (distribution, sorted(files))


def test_every_runtime_dependency_is_used() -> None:
    files = tree.python_files("v4model", "harness")
    assert _runtime() - _imported(files).keys() - _named_in_strings(files) == set()


def test_suites_import_only_declared_packages() -> None:
    declared = _runtime() | _extra("test") | _extra("dev")
    undeclared = {d: f for d, f in _imported(tree.python_files("suites", "conftest.py")).items() if d not in declared}
    assert undeclared == {}


def test_every_declared_package_has_an_exact_pin() -> None:
    lines = [line for line in tree.text("constraints.txt").splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = _names(lines)
    assert (_runtime() | _extra("test") | _extra("dev")) - pinned == set()
    assert {"torch==2.13.0", "megatron-core==0.16.1", "transformers==5.23.0"} <= set(lines)


def test_every_test_dependency_is_used() -> None:
    used = _imported(tree.python_files("suites", "harness", "conftest.py")).keys()
    strings = _named_in_strings(tree.python_files("harness"))
    # xdist is a plugin: the Makefile asks for its workers, no file imports it.
    assert "-n auto" in tree.text("Makefile")
    assert _extra("test") - used - strings == {"pytest-xdist"}
