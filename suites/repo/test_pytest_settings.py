"""How the suites are run does not depend on where they are run."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tomllib

import pytest
from hypothesis import settings

import conftest
from suites.repo import checks, tree


@pytest.mark.parametrize("name", sorted(conftest.PROFILES))
def test_every_field_of_a_profile_is_explicit(name: str) -> None:
    fields = inspect.signature(settings.__init__).parameters.keys() - {"self", "parent"}
    assert conftest.PROFILES[name].keys() == fields


def test_suites_and_harness_name_the_same_profiles() -> None:
    from harness.engine import PROFILES

    assert conftest.PROFILES.keys() == PROFILES.keys()


def test_the_chosen_profile_is_the_active_one(profile: str) -> None:
    expected = settings(**conftest.PROFILES[profile])
    assert repr(settings.default) == repr(expected)


def test_a_ci_variable_changes_nothing() -> None:
    """Hypothesis activates its own "ci" profile when CI is set; ours must replace it."""
    code = (
        "import conftest, hypothesis\n"
        "class Config:\n"
        "    def getoption(self, name): return 'quick'\n"
        "print(hypothesis.settings.default)\n"
        "conftest.pytest_configure(Config())\n"
        "print(hypothesis.settings.default)\n"
    )

    def before_and_after(environment: dict[str, str]) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=tree.ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.splitlines()

    plain, ci = before_and_after({}), before_and_after({"CI": "true"})
    assert plain[0] != ci[0], "Hypothesis no longer reacts to CI; this test has nothing to check"
    assert plain[1] == ci[1]


def test_tests_are_never_grouped_by_xdist() -> None:
    """With pytest 9.2.0 and pytest-xdist 3.8.0, ``--dist loadgroup`` accepts groups and silently does not keep them.

    Twelve tests of one ``xdist_group`` ran on both of two workers, without a warning. A test that counts on a group
    would fail only now and then, so neither the option nor the mark may be used; ``--dist loadfile`` does keep files.
    """
    banned = "load" + "group"
    settings_files = [p for p in tree.text_files() if p.suffix in {".toml", ".yml", ".yaml"} or p.name == "Makefile"]
    assert [str(path) for path in settings_files if banned in tree.text(path)] == []
    assert banned not in tree.text(".ci/run")
    marked = [
        str(path)
        for path in tree.python_files("suites")
        if checks.mentions(tree.syntax(path), "pytest.mark.xdist_group")
    ]
    assert marked == []


def test_no_test_is_named_after_a_folder_of_this_machine(request: pytest.FixtureRequest) -> None:
    """An id that holds the place of the tree would be gone, and another one new, on every other machine."""
    assert [item.nodeid for item in request.session.items if str(tree.ROOT) in item.nodeid] == []


def test_pytest_is_strict() -> None:
    options = tomllib.loads(tree.text("pyproject.toml"))["tool"]["pytest"]["ini_options"]
    assert {"--strict-markers", "--strict-config"} <= set(options["addopts"])
    assert options["junit_family"] == "xunit1"
    assert options["xfail_strict"] is True
    assert options["filterwarnings"][0] == "error"
    assert all(entry.startswith("ignore:") and entry.count(":") >= 2 for entry in options["filterwarnings"][1:])


def test_torch_has_one_thread_in_a_worker() -> None:
    import torch

    conftest.pytest_runtest_setup()
    assert torch.get_num_threads() == 1


def test_conftest_does_not_read_the_environment() -> None:
    assert checks.environment_reads(ast.parse(tree.text("conftest.py"))) == []
