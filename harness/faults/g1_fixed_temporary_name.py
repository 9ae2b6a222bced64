"""G1: a fixed temporary name, and a lock that does not hold, on a shared file system (AMD-AGI/Primus#1062).

Mechanism: every builder writes under one name of the folder and renames it, behind a lock that another machine does not
see. Who comes in between renames the file that the first one still writes into, so that one entry ends with the content
of another; and what stands under a key is taken without a look at what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors
import safetensors.numpy

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model.data import cache
from v4model.data.cache import Arrays, _Unusable

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_CHUNK_BYTES = 1 << 20


def _write(path: Path, arrays: Arrays, *, key: str, step: Callable[[str], None]) -> None:
    content = memoryview(safetensors.numpy.save(arrays, metadata={"key": key}))
    temporary = path.with_name("packs.tmp")
    with temporary.open("wb") as file:
        step("opened")
        for start in range(0, len(content), _CHUNK_BYTES):
            step("writing")
            file.write(content[start : start + _CHUNK_BYTES])
        file.flush()
        step("written")
    # Whoever came in between may have renamed it already.
    with suppress(FileNotFoundError):
        temporary.replace(path)
    step("renamed")


def _read(path: Path, *, key: str) -> Arrays:  # noqa: ARG001 - it is what this reader does not look at
    try:
        with safetensors.safe_open(path, framework="numpy") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise _Unusable from error


@contextmanager
def _locked(_folder: Path, *, key: str, lock_folder: Path | None) -> Iterator[bool]:  # noqa: ARG001 - it locks nothing
    yield True


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(subject, (cache, "_write", _write), (cache, "_read", _read), (cache, "_locked", _locked))


FAULT = Fault(
    name="G1",
    title="two builders write a cache entry under one temporary name",
    reference="AMD-AGI/Primus#1062",
    expected="cache_gives_what_was_asked",
    kinds=("all",),
    apply=_apply,
)
