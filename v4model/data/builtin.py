"""Real text without a network: docstrings of the installed Python and torch as questions and answers.

Sources are read and parsed, never executed. What comes out depends on the installation alone: files are taken in a
fixed order that spreads evenly over both libraries, so a smaller limit gives a prefix of a larger one.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from v4model.data.tokenizer import unusable_part
from v4model.errors import DataError

# Other packages, tests and bundled copies; and what is not Python source of the library itself.
_SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "testing", "idlelib", "lib2to3", "include", "lib", "_vendor"}
)
# Parsing costs per byte and yields per docstring, so sources that are huge or hardly documented are passed over.
_MAX_SOURCE_BYTES = 200_000
_MAX_BYTES_PER_DOCSTRING = 2_000
_MIN_ANSWER_WORDS = 3


@dataclass(frozen=True)
class Docstring:
    """A documented object as a question and its answer; `name` is dotted, as in "json.decoder.JSONDecoder.decode"."""

    name: str
    question: str
    answer: str


def docstrings(*, limit: int) -> list[Docstring]:
    """At most `limit` documented objects with distinct answers, evenly spread over the libraries' files.

    Lengths are the natural ones: nothing is cut. Raises DataError when limit < 1 or no source is installed.
    """
    if limit < 1:
        raise DataError(got=f"limit {limit}", expected="at least 1")
    found: list[Docstring] = []
    answers: set[str] = set()
    for module, path in _spread(_source_files()):
        for docstring in _of_file(module, path):
            if docstring.answer not in answers:
                answers.add(docstring.answer)
                found.append(docstring)
            if len(found) == limit:
                return found
    if not found:
        raise DataError(got="no Python sources with docstrings", expected="those of the standard library and torch")
    return found


def _source_files() -> list[tuple[str, Path]]:
    """(dotted module name, file) of the standard library and torch, sorted by name: independent of disk order."""
    files = []
    torch = importlib.util.find_spec("torch")
    torch_folders = torch.submodule_search_locations if torch else None
    for prefix, root in (("", sysconfig.get_paths()["stdlib"]), *(("torch", folder) for folder in torch_folders or ())):
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS and name.isidentifier()]
            for name in names:
                path = Path(folder, name)
                if path.suffix == ".py" and path.stem.isidentifier():
                    parts = path.relative_to(root).with_suffix("").parts
                    dotted = [prefix, *(part for part in parts if part != "__init__")]
                    files.append((".".join(part for part in dotted if part), path))
    return sorted(files)


def _spread(files: list[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """All files once, each next one about 0.618 of the list further: any prefix covers the list evenly."""
    if not files:
        return
    step = next(
        step for step in range(max(1, int(len(files) * 0.618)), len(files) + 2) if math.gcd(step, len(files)) == 1
    )
    for turn in range(len(files)):
        yield files[turn * step % len(files)]


def _of_file(module: str, path: Path) -> Iterator[Docstring]:
    try:
        source = path.read_bytes()
    except OSError:
        return
    documented = source.count(b'"""') // 2
    if len(source) > _MAX_SOURCE_BYTES or documented * _MAX_BYTES_PER_DOCSTRING < len(source):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the libraries' own literals
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a file meant for another Python version
        return
    yield from _of_node(tree, name=module, question=f"What is the module `{module}` for?")
    yield from _of_body(tree.body, module)


def _of_body(body: list[ast.stmt], owner: str) -> Iterator[Docstring]:
    """Public functions, classes and methods in source order; bodies of functions are not searched."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        name = f"{owner}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _of_node(node, name=name, question=f"What is the class `{name}`?")
            yield from _of_body(node.body, name)
        else:
            yield from _of_node(node, name=name, question=f"What does `{name}({ast.unparse(node.args)})` do?")


def _of_node(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, *, name: str, question: str
) -> Iterator[Docstring]:
    answer = (ast.get_docstring(node) or "").strip()
    if len(answer.split()) >= _MIN_ANSWER_WORDS and not unusable_part(answer) and not unusable_part(question):
        yield Docstring(name, question, answer)
