"""Who may import whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suites.repo import checks, tree


def test_import_contracts_hold() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_one_file_imports_megatron() -> None:
    importers = [path for path in tree.python_files() if checks.imports_of(tree.syntax(path), "megatron")]
    assert importers == [Path("v4model/parallel/megatron/core.py")]


def test_the_pack_knows_neither_layers_nor_process_groups() -> None:
    # import-linter sees torch as one module, so its parts are looked for here.
    parts = ("torch.nn", "torch.distributed")
    files = [path for path in tree.python_files("v4model") if path.parts[1] == "pack"]
    assert files
    found = {
        str(path): checks.imports_of(tree.syntax(path), *parts) + checks.mentions(tree.syntax(path), *parts)
        for path in files
    }
    assert {path: what for path, what in found.items() if what} == {}


def test_only_subjects_and_faults_take_the_model_by_name() -> None:
    # `from v4model import V4Model` is an import of v4model, which the protected contract cannot tell apart.
    outside = [p for p in tree.python_files("harness") if p.parts[1] not in {"subjects", "faults"}]
    assert outside
    found = {str(p): checks.imports_of(tree.syntax(p), "v4model.V4Model", "v4model.hf") for p in outside}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "module",
    [
        "harness.witness",
        "harness.verdict",
        "harness.junit",
        "harness.baseline.record",
        "harness.baseline.output.html",
        "harness.pytest_results",
        "harness.subjects.numpy_reading",
    ],
)
def test_module_starts_without_torch(module: str) -> None:
    # The contract reads import statements; this also covers what the packages above the module import on the way.
    code = f"import sys, {module}; sys.exit(' '.join({{'torch', 'v4model'}} & sys.modules.keys()) or 0)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"importing {module} also imported or raised: {run.stderr}"
