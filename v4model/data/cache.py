"""Arrays that are built once and read by everyone: one safetensors file a key, whole or not there.

A file appears under its name only when all of it is on the disk: it is written under a name that nobody else uses,
synchronised and renamed. So a process killed at any moment leaves the old entry, the new one, or none. Processes of a
node take turns by a lock on a node-local path (locks of shared file systems are not to be relied on); two nodes that
build at once write the same content, and the later rename wins.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from filelock import FileLock

Arrays = dict[str, npt.NDArray[Any]]

LAYOUT = "1"
"""Version of the file's own layout."""
STEPS = ("waiting", "locked", "built", "opened", "writing", "written", "synced", "renamed", "settled")
_CHUNK_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class _Unusable(Exception):
    """Why the file of an entry cannot be taken; empty if there is none."""


def _nothing(_step: str) -> None:
    pass


def cached(
    folder: Path,
    *,
    key: str,
    build: Callable[[], Arrays],
    lock_folder: Path | None = None,
    step: Callable[[str], None] = _nothing,
) -> Arrays:
    """The arrays under `key`, built by one process of the node if no whole entry is there.

    A damaged entry, or one that another version wrote, is built again with a warning in the log; a folder that cannot
    be written too: then the arrays are only returned.

    Args:
        key: a file name that changes with anything that changes the arrays.
        lock_folder: a node-local folder; None: one of this user's in the folder of temporary files.
        step: called at each of STEPS as it is reached ("writing" once before every MiB).
    """
    path = folder / f"{key}.safetensors"
    try:
        return _read(path, key=key)
    except _Unusable as reason:  # looked at again under the lock
        seen = str(reason)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        entry = f", where {path.name} is {seen}" if seen else ""
        _log.warning("cannot write to the cache %s (%s)%s; packs are built in memory", folder, error.strerror, entry)
        return build()
    step("waiting")
    with _locked(folder, key=key, lock_folder=lock_folder) as alone:
        step("locked")
        try:
            return _read(path, key=key)
        except _Unusable as reason:
            if str(reason):
                _log.warning("building %s again: %s", path, reason)
        arrays = build()
        step("built")
        try:
            if alone:
                _sweep(folder, key=key)
            _write(path, arrays, key=key, step=step)
        except OSError as error:
            _log.warning("cannot write %s (%s); packs stay in memory", path, error.strerror)
        return arrays


@contextmanager
def _locked(folder: Path, *, key: str, lock_folder: Path | None) -> Iterator[bool]:
    """Holds the entry's lock and says so; False where no lock can be had, which costs double work and nothing else."""
    where = lock_folder or Path(tempfile.gettempdir(), f"v4model-locks-{os.getuid()}")
    name = hashlib.sha256(f"{folder.resolve()}\0{key}".encode()).hexdigest()[:32]
    lock = FileLock(where / f"{name}.lock")
    try:
        where.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError) as error:
        _log.warning("no lock in %s (%s); other processes may build the same packs", where, error)
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _read(path: Path, *, key: str) -> Arrays:
    try:
        with safetensors.safe_open(path, framework="numpy") as opened:
            header = opened.metadata() or {}
            arrays: Arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise _Unusable from error
    except (OSError, safetensors.SafetensorError) as error:
        raise _Unusable(f"truncated, or no cache entry ({error})") from error
    if header.get("layout") != LAYOUT:
        raise _Unusable(f"written by another version (layout {header.get('layout')}, expected {LAYOUT})")
    if header.get("key") != key:
        raise _Unusable(f"an entry of another key ({header.get('key')})")
    if header.get("sha256") != _digest(arrays):
        raise _Unusable("damaged: its contents do not have the digest in its header")
    return arrays


def _write(path: Path, arrays: Arrays, *, key: str, step: Callable[[str], None]) -> None:
    header = {"layout": LAYOUT, "key": key, "sha256": _digest(arrays)}
    content = memoryview(safetensors.numpy.save(arrays, metadata=header))
    temporary = path.with_name(f"{_prefix(key)}{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            step("opened")
            for start in range(0, len(content), _CHUNK_BYTES):
                step("writing")
                file.write(content[start : start + _CHUNK_BYTES])
            file.flush()
            step("written")
            os.fsync(file.fileno())
        step("synced")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    step("renamed")
    _sync_folder(path.parent)
    step("settled")


def _sync_folder(folder: Path) -> None:
    """Makes a rename outlast a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(folder: Path, *, key: str) -> None:
    """Removes what killed writers of this node left; the lock is held, so none of them is alive."""
    for stale in folder.glob(f"{_prefix(key)}*.tmp"):
        stale.unlink(missing_ok=True)


def _prefix(key: str) -> str:
    return f"{key}.{platform.node()}."


def _digest(arrays: Arrays) -> str:
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        whole.update(array.data)
    return whole.hexdigest()
