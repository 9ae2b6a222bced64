"""The checks of this folder find what they are for, and nothing else."""

from __future__ import annotations

import ast

import pytest

from suites.repo import checks


@pytest.mark.parametrize(
    "source",
    [
        "import os\nx = os.environ['A']",
        "import os\nx = os.environ.get('A')",
        "import os as o\nx = o.getenv('A')",
        "from os import environ",
        "from os import getenv as g",
    ],
)
def test_an_environment_read_is_found(source: str) -> None:
    assert checks.environment_reads(ast.parse(source))


@pytest.mark.parametrize("source", ["import os\nx = os.path.join('a')", "class A:\n    environ = 1\nx = A.environ"])
def test_other_uses_of_os_are_not_environment_reads(source: str) -> None:
    assert checks.environment_reads(ast.parse(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import a.b",
        "from a import b",
        "from a.b import c",
        "import importlib\nimportlib.import_module('a.b.c')",
        "def f():\n    import a.b",
    ],
)
def test_an_import_is_found(source: str) -> None:
    assert checks.imports_of(ast.parse(source), "a.b")


def test_a_name_that_only_begins_alike_is_not_an_import() -> None:
    assert checks.imports_of(ast.parse("import a.bc\nfrom a import c"), "a.b") == []


def test_an_attribute_chain_is_found() -> None:
    assert checks.mentions(ast.parse("import torch\ntorch.nn.Linear(1, 1)"), "torch.nn")


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip\ndef test(): ...",
        "@pytest.mark.skip()\ndef test(): ...",
        "@pytest.mark.skipif(True)\ndef test(): ...",
        "@pytest.mark.xfail(strict=True)\ndef test(): ...",
        "def test():\n    pytest.skip('')",
        "pytest.importorskip('a')",
        "from pytest import skip",
    ],
)
def test_a_skip_without_a_reason_is_found(source: str) -> None:
    assert checks.skips_without_reason(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip('needs two ranks')\ndef test(): ...",
        "@pytest.mark.xfail(reason='known', strict=True)\ndef test(): ...",
        "def test():\n    pytest.skip(why)",
    ],
)
def test_a_skip_with_a_reason_passes(source: str) -> None:
    assert checks.skips_without_reason(ast.parse(source)) == []


@pytest.mark.parametrize("folder", ["work", "root", "opt"])
def test_a_machine_path_is_found(folder: str) -> None:
    assert checks.machine_paths(f"see /{folder}/thing")
    assert checks.machine_paths(f'"/{folder}/thing"')
    assert checks.machine_paths(f"a/{folder}/thing") == []
    assert checks.machine_paths(f"https://example.org/{folder}/thing") == []
