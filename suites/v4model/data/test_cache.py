"""The cache among real processes: built once, whole or absent whenever one dies, and never trusted when damaged."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from v4model.data import cache
from v4model.data.cache import STEPS, Arrays, cached

ROOT = Path(__file__).parents[3]
KEY = "k" * 64
# One process: waits to be let go, says when it stands at the lock, and if it has to build says so and waits once more.
READER = """
import sys, numpy as np
from pathlib import Path
from v4model.data.cache import cached

def build():
    print("building", flush=True)
    sys.stdin.readline()
    return {"a": np.arange(7)}

def step(name):
    if name == "waiting":
        print(name, flush=True)

print("started", flush=True)
sys.stdin.readline()
arrays = cached(Path(sys.argv[1]), key=sys.argv[2], build=build, lock_folder=Path(sys.argv[3]), step=step)
print("read", arrays["a"].tolist(), "torch" in sys.modules, flush=True)
"""
# One process that kills itself when it reaches a step for the n-th time.
KILLED = """
import os, signal, sys, numpy as np
from pathlib import Path
from v4model.data.cache import cached

left = {sys.argv[4]: int(sys.argv[5])}

def step(name):
    left[name] = left.get(name, 0) - 1
    if left[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

cached(Path(sys.argv[1]), key=sys.argv[2], lock_folder=Path(sys.argv[3]), step=step,
       build=lambda: {"a": np.arange(300_000)})
"""


def refuse() -> Arrays:
    raise AssertionError("built although an entry was there")


def numbers(count: int) -> Arrays:
    return {"a": np.arange(count), "b": np.arange(count) % 3 == 0, "none": np.zeros(0, dtype=np.int32)}


def same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)


def entry(folder: Path) -> Path:
    return folder / f"{KEY}.safetensors"


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.message for record in caplog.records]


def test_an_entry_is_built_once_and_read_again(tmp_path: Path, messages: Callable[[], list[str]]) -> None:
    folder = tmp_path / "new" / "folder"
    built = cached(folder, key=KEY, build=lambda: numbers(5), lock_folder=tmp_path)
    assert same(built, numbers(5))
    assert same(cached(folder, key=KEY, build=refuse, lock_folder=tmp_path), built)
    assert [path.name for path in folder.iterdir()] == [entry(folder).name]
    assert messages() == []


def test_another_key_is_another_entry(tmp_path: Path) -> None:
    for count, key in ((3, "one"), (4, "two")):
        cached(tmp_path, key=key, build=lambda count=count: numbers(count), lock_folder=tmp_path)  # type: ignore[misc]
    assert [cached(tmp_path, key=key, build=refuse)["a"].size for key in ("one", "two")] == [3, 4]


def damaged(content: bytes, how: str) -> bytes:
    if how == "flipped":
        return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    return {"empty": b"", "truncated": content[:-1], "header cut": content[:20], "text": b"no safetensors" * 9}[how]


def rewritten(arrays: Arrays, **changes: str) -> bytes:
    header = {"layout": cache.LAYOUT, "key": KEY, "sha256": cache._digest(arrays)} | changes
    return safetensors.numpy.save(arrays, metadata=header)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("empty", "truncated, or no cache entry"),
        ("truncated", "truncated, or no cache entry"),
        ("header cut", "truncated, or no cache entry"),
        ("text", "truncated, or no cache entry"),
        ("flipped", "damaged: its contents do not have the digest in its header"),
        ("old", "written by another version (layout 0, expected 1)"),
        ("of another key", "an entry of another key (other)"),
        ("without a header", "written by another version (layout None, expected 1)"),
    ],
)
def test_a_damaged_or_old_entry_is_built_again_and_said(
    tmp_path: Path, messages: Callable[[], list[str]], how: str, said: str
) -> None:
    cached(tmp_path, key=KEY, build=lambda: numbers(5), lock_folder=tmp_path)
    special = {
        "old": rewritten(numbers(5), layout="0"),
        "of another key": rewritten(numbers(5), key="other"),
        "without a header": safetensors.numpy.save(numbers(5)),
    }
    path = entry(tmp_path)
    path.write_bytes(special[how] if how in special else damaged(path.read_bytes(), how))
    assert same(cached(tmp_path, key=KEY, build=lambda: numbers(5), lock_folder=tmp_path), numbers(5))
    (message,) = messages()
    assert message.startswith(f"building {path} again: {said}")
    assert same(cached(tmp_path, key=KEY, build=refuse), numbers(5))


def process(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_sixteen_processes_at_once_build_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        arguments = (str(tmp_path / "cache"), KEY, str(tmp_path / "locks"))
        running = [stack.enter_context(process(READER, *arguments)) for _ in range(16)]

        def told() -> list[str]:
            return [one.stdout.readline() for one in running if one.stdout]

        def go() -> None:
            for one in running:
                assert one.stdin is not None
                one.stdin.write("go\n")
                one.stdin.flush()

        assert told() == ["started\n"] * 16
        go()
        # None has seen an entry, and none can be there before the builder is let go too.
        assert told() == ["waiting\n"] * 16
        go()
        # Not communicate(): it passes over what readline has buffered.
        outputs = [one.stdout.read() for one in running if one.stdout]
        assert [one.wait() for one in running] == [0] * 16
    read = "read [0, 1, 2, 3, 4, 5, 6] False\n"
    assert sorted(outputs) == ["building\n" + read] + [read] * 15


@pytest.mark.parametrize("before", ["nothing", "a damaged entry"])
@pytest.mark.parametrize(("step", "time"), [(name, 1) for name in STEPS] + [("writing", 2)])
def test_a_process_killed_at_any_step_loses_nothing(
    tmp_path: Path, messages: Callable[[], list[str]], before: str, step: str, time: int
) -> None:
    folder, locks = tmp_path / "cache", tmp_path / "locks"
    wanted = {"a": np.arange(300_000)}
    if before == "a damaged entry":
        cached(folder, key=KEY, build=lambda: wanted, lock_folder=locks)
        entry(folder).write_bytes(entry(folder).read_bytes()[:-1])
    with process(KILLED, str(folder), KEY, str(locks), step, str(time)) as killed:
        assert killed.wait() == -9
    finished = STEPS.index(step) >= STEPS.index("renamed")
    built: list[str] = []
    found = cached(folder, key=KEY, build=lambda: built.append("again") or wanted, lock_folder=locks)  # type: ignore[func-returns-value]
    assert same(found, wanted)
    assert built == ([] if finished else ["again"])
    assert [path.name for path in folder.iterdir()] == [entry(folder).name]
    assert len(messages()) == (before == "a damaged entry" and not finished)


def test_two_nodes_that_build_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], list[str]]
) -> None:
    def on_node(name: str, step: Callable[[str], None]) -> Arrays:
        monkeypatch.setattr(cache.platform, "node", lambda: name)
        return cached(tmp_path / "c", key=KEY, build=lambda: numbers(5), lock_folder=tmp_path / name, step=step)

    def meanwhile(step: str) -> None:
        if step == "written":
            assert same(on_node("second", lambda _step: None), numbers(5))

    assert same(on_node("first", meanwhile), numbers(5))
    assert [path.name for path in (tmp_path / "c").iterdir()] == [entry(tmp_path).name]
    assert messages() == []


def test_a_folder_that_cannot_be_written_costs_a_warning_only(
    tmp_path: Path, messages: Callable[[], list[str]]
) -> None:
    (tmp_path / "file").write_text("")
    found = cached(tmp_path / "file" / "cache", key=KEY, build=lambda: numbers(5), lock_folder=tmp_path)
    assert same(found, numbers(5))
    (message,) = messages()
    assert message.startswith(f"cannot write to the cache {tmp_path / 'file' / 'cache'} (Not a directory)")


def test_a_damaged_entry_in_a_folder_that_cannot_be_written_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], list[str]]
) -> None:
    def read_only(**_named: object) -> None:
        raise OSError(30, "Read-only file system")

    entry(tmp_path).write_bytes(b"")
    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    assert same(cached(tmp_path, key=KEY, build=lambda: numbers(5), lock_folder=tmp_path), numbers(5))
    (message,) = messages()
    assert f"(Read-only file system), where {entry(tmp_path).name} is truncated, or no cache entry" in message


def test_a_disk_that_fills_up_costs_a_warning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], list[str]]
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert same(cached(tmp_path / "c", key=KEY, build=lambda: numbers(5), lock_folder=tmp_path), numbers(5))
    assert list((tmp_path / "c").iterdir()) == []
    (message,) = messages()
    assert "(No space left on device); packs stay in memory" in message


def test_without_a_lock_packs_are_still_cached(tmp_path: Path, messages: Callable[[], list[str]]) -> None:
    (tmp_path / "file").write_text("")
    cached(tmp_path / "c", key=KEY, build=lambda: numbers(5), lock_folder=tmp_path / "file" / "locks")
    assert "other processes may build the same packs" in messages()[0]
    assert same(cached(tmp_path / "c", key=KEY, build=refuse), numbers(5))


def test_the_lock_is_node_local_and_not_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "node"))
    cached(tmp_path / "shared", key=KEY, build=lambda: numbers(5))
    assert [path.suffix for path in (tmp_path / "shared").iterdir()] == [".safetensors"]
    (locks,) = (tmp_path / "node").iterdir()
    assert locks.name == f"v4model-locks-{os.getuid()}"


def test_an_error_of_the_builder_leaves_no_trace(tmp_path: Path) -> None:
    def fail() -> Arrays:
        raise ValueError("no samples")

    with pytest.raises(ValueError, match="no samples"):
        cached(tmp_path / "c", key=KEY, build=fail, lock_folder=tmp_path)
    assert list((tmp_path / "c").iterdir()) == []
    assert same(cached(tmp_path / "c", key=KEY, build=lambda: numbers(5), lock_folder=tmp_path), numbers(5))


def test_no_entry_runs_code_when_read(tmp_path: Path) -> None:
    cached(tmp_path, key=KEY, build=lambda: numbers(5), lock_folder=tmp_path)
    content = entry(tmp_path).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"]["key"] == KEY
    assert {name: value["dtype"] for name, value in header.items() if name != "__metadata__"} == {
        "a": "I64",
        "b": "BOOL",
        "none": "I32",
    }
