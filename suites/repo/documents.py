"""Reads commands out of Markdown and says which of them cannot work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache, partial
from itertools import takewhile

from suites.repo import tree

# Blocks in these languages are commands or plain text; a command hidden under another name would go unchecked.
LANGUAGES = {"bash", "text", "python", "json", "mermaid", "toml"}
# Setting up a clone is what the reader does before anything of ours can run.
SETUP = {("git", "clone"), ("cd",), ("source", ".venv/bin/activate"), ("pre-commit", "install")}

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def blocks(markdown: str) -> list[tuple[str, str]]:
    """Every fenced block as (language, content)."""
    return [(language.strip(), content) for language, content in _FENCE.findall(markdown)]


def commands(markdown: str) -> list[list[str]]:
    """Every command of the ``bash`` blocks, split into words; comments are dropped, ``&&`` separates commands."""
    found = []
    for language, content in blocks(markdown):
        if language == "bash":
            for line in content.replace("\\\n", " ").splitlines():
                for part in line.split("&&"):
                    if words := shlex.split(part, comments=True):
                        found.append(words)
    return found


@cache
def _flags(*program: str) -> frozenset[str]:
    """The options a program lists in its help; empty when it does not know the words before them."""
    environment = dict(os.environ) | {"COLUMNS": "200", "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=tree.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return frozenset(_FLAG.findall(_ANSI.sub("", run.stdout))) if run.returncode == 0 else frozenset()


def _unknown_flags(words: list[str], *program: str) -> list[str]:
    known = _flags(*program)
    if not known:
        return [f"{' '.join(program[-1:])} is not a command"]
    used = [word.split("=")[0] for word in words if word.startswith("-")]
    return [f"{flag} is not an option" for flag in used if flag not in known]


def _make_problems(words: list[str]) -> list[str]:
    makefile = tree.text("Makefile")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+)\s*\?=", makefile, re.MULTILINE))
    found = []
    for word in words:
        name, is_assignment, _ = word.partition("=")
        known = variables if is_assignment else targets
        found += [] if name in known else [f"{word} is neither a target nor a variable of the Makefile"]
    return found


def _pytest_problems(words: list[str]) -> list[str]:
    paths = [word.split("::")[0] for word in words if word.startswith("suites")]
    missing = [f"{path} does not exist" for path in paths if not (tree.ROOT / path).exists()]
    return missing + _unknown_flags(words, "-m", "pytest")


def _console_problems(words: list[str], *, package: str) -> list[str]:
    """Problems of a console script of ours: its subcommands are the words before the first option or argument."""
    start = f"from {package}.cli import main; main()"
    depth = {"harness": 1, "v4model": 2}[package]
    subcommands = list(takewhile(lambda word: not word.startswith("-"), words[:depth]))
    return _unknown_flags(words, "-c", start, *subcommands)


def problems(words: list[str]) -> list[str]:
    """Why a documented command cannot work; empty when it can."""
    program, rest = words[0].removeprefix(".venv/bin/"), words[1:]
    if any(words[: len(known)] == list(known) or (program, *rest) == known for known in SETUP):
        return []
    if program == ".ci/run" and not rest:
        return []
    checkers = {
        "make": _make_problems,
        "pytest": _pytest_problems,
        "harness": partial(_console_problems, package="harness"),
        "v4model": partial(_console_problems, package="v4model"),
    }
    if program not in checkers:
        return [f"{program} is not among the commands that tests or CI run"]
    return checkers[program](rest)
