"""Which files the repository consists of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folders that tools make; hidden ones count only when they are part of the repository.
_MADE = {"__pycache__", "build", "dist", "reports"}
_HIDDEN_PARTS = {".ci", ".github"}
_TEXT = {".cfg", ".ini", ".json", ".jsonl", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yaml", ".yml"}
_TEXT_NAMES = {"Makefile", "LICENSE", "run", "nightly", ".gitignore", ".pre-commit-config.yaml"}


@cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def text(path: Path | str) -> str:
    """The content of a file, named from the repository's root."""
    return _text_of(ROOT / path)


@cache
def syntax(path: Path) -> ast.Module:
    """The parsed content of a Python file, named from the repository's root."""
    return ast.parse(text(path), filename=str(path))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name not in _HIDDEN_PARTS
            if not hidden and path.name not in _MADE and not path.name.endswith(".egg-info"):
                yield from _walk(path)
        elif path.suffix in _TEXT or path.name in _TEXT_NAMES:
            yield path.relative_to(ROOT)


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file of the repository, relative to its root; no Git is needed, so a copy of the tree works too."""
    return tuple(_walk(ROOT))


def python_files(*folders: str) -> tuple[Path, ...]:
    """The Python files below the named top folders, or every one in the repository."""
    return tuple(p for p in text_files() if p.suffix == ".py" and (not folders or p.parts[0] in folders))
