"""A worker process seen from here: started once, asked one thing at a time, ended when it fails or nobody needs it."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from harness.errors import HarnessError
from harness.subjects.protocol import Unsupported
from harness.subjects.worker import bootstrap, frames
from harness.subjects.worker.spec import WorkerSpec

_PACKAGES = ("harness", "v4model")
_LAST_LINES = 3
_LAST_BYTES = 4096


class WorkerFailure(RuntimeError):
    """A worker died, was silent past its deadline, or raised; one line, with the last ones of what it printed."""


class WorkerProcess:
    """A Python of another environment with `harness.subjects.worker.serve` in it. Not to be shared among threads."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._printed: IO[bytes] = tempfile.TemporaryFile(prefix="worker-")  # noqa: SIM115 - closed by `close`
        self._channel, theirs = socket.socketpair()
        self.deadline_s = spec.deadline_s
        """How long an answer may take."""
        self._released: list[int] = []
        settings = {
            "descriptor": theirs.fileno(),
            "packages": {name: _init_file(name) for name in _PACKAGES},
            "paths": spec.paths,
            "threads": spec.threads,
        }
        variables = [f"{name}={value}" for name, value in spec.environment]
        self._process = subprocess.Popen(
            # By `env`, so that they are there before the interpreter starts.
            [*(["env", *variables] if variables else []), spec.python, "-c", _source(), json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            # What a subject prints goes where it can do no harm, and is quoted when it fails.
            stdout=self._printed,
            stderr=self._printed,
            pass_fds=(theirs.fileno(),),
            # Ctrl-C at a terminal is for the parent, whose end this process notices.
            start_new_session=True,
        )
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._printed.closed and self._process.poll() is None

    def release(self, number: int) -> None:
        """Tell the worker with the next question to forget a subject or a graph."""
        self._released.append(number)

    def ask(
        self, what: str, request: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """The worker's answer.

        Raises:
            Unsupported: the subject there said so.
            HarnessError: it was asked for what it cannot use, as an error of the same kind here.
            WorkerFailure: anything else; if it died or was silent past the deadline, it is ended.
        """
        released, self._released = self._released, []
        self._channel.settimeout(self.deadline_s)
        try:
            frames.send(self._channel, {**(request or {}), "ask": what, "release": released}, tensors)
            answer, found = frames.receive(self._channel)
        except TimeoutError as error:
            raise self._ended(f"gave no answer to {what} within {self.deadline_s:g} s") from error
        except frames.FrameError as error:
            raise self._ended(f"answered {what} with {error}") from error
        except (OSError, EOFError) as error:
            raise self._ended(f"died at {what}, {self._how()}") from error
        if "error" in answer:
            raise self._raised(what, answer)
        return answer, found

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._printed.closed:
            return
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._printed.close()

    def _raised(self, what: str, answer: Mapping[str, Any]) -> Exception:
        if answer["error"] == "unsupported":
            return Unsupported(answer["message"])
        if answer["parts"] is not None:
            got, expected, where = answer["parts"]
            return HarnessError(got=got, expected=expected, where=f"{where}, in the worker" if where else "the worker")
        first = (answer["message"].strip().splitlines() or [""])[0]
        error = WorkerFailure(f"{answer['type']}: {first} (at {what}, in worker {self._spec.factory})")
        error.add_note(answer["trace"])
        return error

    def _ended(self, how: str) -> WorkerFailure:
        self._process.kill()
        self._process.wait()
        said = self._last_lines()
        self.close()
        return WorkerFailure(
            f"worker {self._spec.factory} {how}" + (f"; it last printed: {said}" if said else "; it printed nothing")
        )

    def _how(self) -> str:
        """Called when the connection is gone; the process may still be on its way out."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "leaving its connection closed"
        return f"by signal {-code}" if code < 0 else f"exit code {code}"

    def _last_lines(self) -> str:
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(size - _LAST_BYTES, 0))
        lines = self._printed.read().decode(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-_LAST_LINES:])


@cache
def _workers() -> dict[WorkerSpec, WorkerProcess]:
    workers: dict[WorkerSpec, WorkerProcess] = {}
    atexit.register(_close_all, workers)
    return workers


def _close_all(workers: dict[WorkerSpec, WorkerProcess]) -> None:
    for worker in workers.values():
        worker.close()


def worker_of(spec: WorkerSpec) -> tuple[WorkerProcess, bool]:
    """This process's worker of that spec, and whether it is a new one: the first, or because the last one failed."""
    workers = _workers()
    if spec in workers and workers[spec].alive:
        return workers[spec], False
    if spec in workers:
        workers[spec].close()
    workers[spec] = WorkerProcess(spec)
    return workers[spec], True


@cache
def _source() -> str:
    return Path(bootstrap.__file__).read_text(encoding="utf-8")


def _init_file(package: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
