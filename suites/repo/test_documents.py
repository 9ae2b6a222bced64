"""Commands in the documentation work."""

from __future__ import annotations

import pytest

from suites.repo import documents, tree

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "harness/subjects/README.md"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documented_commands_exist(name: str) -> None:
    assert (tree.ROOT / name).exists(), f"{name} is missing"
    commands = documents.commands(tree.text(name))
    assert commands, f"{name} shows no command in a ```bash block"
    assert {" ".join(words): found for words in commands if (found := documents.problems(words))} == {}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_use_known_languages(name: str) -> None:
    assert (tree.ROOT / name).exists(), f"{name} is missing"
    assert {language for language, _ in documents.blocks(tree.text(name))} <= documents.LANGUAGES


@pytest.mark.parametrize(
    "line",
    [
        "make nothing",
        "make test NOTHING=1",
        "pytest suites/nowhere",
        "pytest suites/ --not-an-option",
        "harness nothing",
        "harness run --not-an-option",
        "v4model data nothing",
        "v4model data stats --not-an-option",
        "curl example.org",
        ".ci/run lint",
    ],
)
def test_a_command_that_cannot_work_is_found(line: str) -> None:
    (words,) = documents.commands(f"```bash\n{line}\n```\n")
    assert documents.problems(words)


@pytest.mark.parametrize(
    "line",
    [
        "make test PYTEST_FLAGS='--profile ci'",
        "pytest suites/ -n auto --profile ci",
        "harness run --profile quick",
        "v4model data stats a.json --window 8",
    ],
)
def test_a_command_that_works_passes(line: str) -> None:
    (words,) = documents.commands(f"```bash\n{line}\n```\n")
    assert documents.problems(words) == []


def test_comments_and_joined_lines_are_understood() -> None:
    text = "```bash\ncd v4pack && make verify  # first\nmake \\\n  test\n```\n```text\nmake nothing\n```\n"
    assert documents.commands(text) == [["cd", "v4pack"], ["make", "verify"], ["make", "test"]]
