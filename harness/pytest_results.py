"""A pytest plugin that leaves one JSON line a test as it finishes, so that a killed run can still be judged.

`-p harness.pytest_results --results FILE`, or `pytest_plugins` in a root conftest, which may say the facts of its
configuration by a hook, `pytest_results_facts`. Under xdist the controller writes; workers do not. The lines, each
flushed:

    {"kind": "header", ...}       what was asked for, on which commit, with which facts
    {"kind": "collected", ...}    the ids that are going to run
    {"kind": "test", ...}         one test that finished; entries are what its JUnit elements would be, none is a pass
    {"kind": "collection", ...}   a file that could not be collected, or skipped itself
    {"kind": "problem", ...}      workers that collected different tests
    {"kind": "footer", ...}       pytest's own exit code; a file without it comes from a run that did not finish

`--results-continue` goes on with such a file: tests that have a result there keep it and are not run again.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import pytest

from harness.commit import commit_of
from harness.pytest_kept import Deselect, Kept, read_kept

SCHEMA_VERSION = 1

_MESSAGE_CHARACTERS = 2000
_RECORDER = "harness-results"
_KEPT_IDS = "harness_results_kept"


class Hooks:
    """What a conftest may answer."""

    @pytest.hookspec(firstresult=True)
    def pytest_results_facts(self, config: pytest.Config) -> dict[str, str]:
        """What a run says of its configuration, such as torch's version, and of its seed."""
        raise NotImplementedError


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add `pytest_results_facts`."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--results`` and ``--results-continue``."""
    parser.addoption("--results", metavar="FILE", help="write one JSON line a test as it finishes")
    parser.addoption(
        "--results-continue",
        action="store_true",
        help="keep the results that the file of --results has, and run only the tests that have none there",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the file before anything is collected, so that a stale one is never taken for this run's."""
    path = config.getoption("--results")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Deselect(config.workerinput.get(_KEPT_IDS, ())))
    elif path is not None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            recorder = _recorder(config, Path(path))
        except (OSError, ValueError, KeyError) as error:
            sentence = f"got {getattr(error, 'strerror', error)}; expected a file to write; where: --results {path}"
            raise pytest.UsageError(sentence) from error
        config.pluginmanager.register(recorder, _RECORDER)
        config.pluginmanager.register(Deselect(recorder.kept.ids))


def _recorder(config: pytest.Config, path: Path) -> Recorder:
    """One that writes a new file, or one that keeps what the old one holds until that is copied."""
    kept = read_kept(path) if config.getoption("--results-continue") else Kept()
    written = path.with_name(path.name + ".partial") if kept.tests else path
    return Recorder(config, written.open("w", encoding="utf-8"), path, kept)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the file."""
    recorder = config.pluginmanager.get_plugin(_RECORDER)
    if recorder is not None:
        config.pluginmanager.unregister(recorder)
        recorder.close()


class Recorder:
    """Writes lines as pytest reports; `kept` are those of an earlier run."""

    def __init__(self, config: pytest.Config, file: TextIO, path: Path, kept: Kept) -> None:
        self.kept = kept
        self._config = config
        self._file = file
        self._path = path
        self._open: dict[tuple[str, str], list[pytest.TestReport]] = {}
        self._collected: list[str] | None = None
        self._tests = len(kept.tests)

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._file.close()
        if self._file.name != str(self._path):  # a run that ended before its first line leaves the old file alone
            Path(self._file.name).unlink(missing_ok=True)

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        # Lone surrogates of odd ids are legal in JSON only as escapes, which ensure_ascii writes.
        self._file.write(json.dumps({"kind": kind, **values}, ensure_ascii=True) + "\n")
        self._file.flush()

    def pytest_sessionstart(self) -> None:
        """Write the header, for by now every conftest has said its facts, and what is kept."""
        config = self._config
        header = {
            "schema_version": SCHEMA_VERSION,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit_of(config.rootpath),
            "selection": selection(config),
            "facts": (config.hook.pytest_results_facts(config=config) or {}) | {"pytest": pytest.__version__},
        }
        self.kept.check(header)
        self._write("header", header)
        for test in self.kept.tests:
            self._write("test", {name: value for name, value in test.items() if name != "kind"})
        os.replace(self._file.name, self._path)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what is kept."""
        node.workerinput[_KEPT_IDS] = self.kept.ids

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the ids of a run in one process; under xdist the controller has no items of its own."""
        if session.items or self.kept.tests:
            self._write_collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Write the ids of the first worker; any other worker must have the same."""
        if self._collected is None:
            self._write_collected(list(ids))
        elif list(ids) != self._collected:
            self._write("problem", {"problem": f"worker {node.gateway.id} collected other tests than the first"})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that failed to be collected, or that skipped itself as a whole."""
        if not report.passed:
            entry = _collection_entry(report)
            self._write("collection", {"nodeid": report.nodeid, "entries": [entry]})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the phases of a test and write it when its teardown, or its worker, is over."""
        key = (report.nodeid, str(getattr(report, "worker_id", "")))
        if getattr(report, "when", None) not in {"setup", "call", "teardown"}:
            # xdist reports a test that took its worker down with no phase and no worker.
            pending = [found for found in self._open if found[0] == report.nodeid]
            reports = [earlier for found in pending for earlier in self._open.pop(found)]
            self._write_test([*reports, report])
            return
        self._open.setdefault(key, []).append(report)
        if report.when == "teardown":
            self._write_test(self._open.pop(key))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write tests that never reached their teardown but have something to say, then the footer.

        pytest knows only of the tests that it ran: all passed, or none was left, says nothing of those that are kept.
        """
        if self.kept.tests and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if self.kept.is_red else pytest.ExitCode.OK
        for reports in self._open.values():
            if any(not report.passed for report in reports):
                self._write_test(reports)
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        self._write("footer", {"exit_code": int(session.exitstatus), "tests": self._tests, "finished": finished})

    def _write_collected(self, ids: list[str]) -> None:
        self._collected = ids
        self._write("collected", {"ids": [*self.kept.ids, *ids]})

    def _write_test(self, reports: list[pytest.TestReport]) -> None:
        self._tests += 1
        file, line, _ = reports[0].location
        values = {
            "nodeid": reports[0].nodeid,
            "file": file,
            "line": line,
            "seconds": round(sum(getattr(report, "duration", 0.0) for report in reports), 3),
            "entries": [entry for report in reports if (entry := _entry(report))],
        }
        self._write("test", values)


def selection(config: pytest.Config) -> dict[str, Any]:
    """Which tests were asked for: the arguments, and the options that leave some out."""
    option = config.option
    limits = {
        "-k": getattr(option, "keyword", "") or None,
        "-m": getattr(option, "markexpr", "") or None,
        "--deselect": getattr(option, "deselect", None) or None,
        "--last-failed": getattr(option, "lf", False) or None,
        "--stepwise": getattr(option, "stepwise", False) or None,
    }
    asked = sorted({_relative(argument, config) for argument in config.args})
    return {"arguments": asked, **{name: value for name, value in limits.items() if value is not None}}


def _relative(argument: str, config: pytest.Config) -> str:
    """An argument as it would be typed in the root folder, whatever folder pytest was called in."""
    path, colons, rest = argument.partition("::")
    absolute = (config.invocation_params.dir / path).resolve()
    if absolute.is_relative_to(config.rootpath):
        path = absolute.relative_to(config.rootpath).as_posix()
    return path + colons + rest


def _entry(report: pytest.TestReport) -> dict[str, str] | None:
    """What pytest's JUnit writer would put inside the testcase for this phase, or nothing."""
    expected = getattr(report, "wasxfail", None)
    if report.outcome == "skipped":
        if expected is not None:
            return {"tag": "skipped", "type": "pytest.xfail", "message": str(expected).removeprefix("reason: ")}
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return {"tag": "skipped", "type": "pytest.skip", "message": _short(reason.removeprefix("Skipped: "))}
    if str(report.outcome) == "rerun":  # pytest-rerunfailures: an attempt that failed and is about to be repeated
        return {"tag": "rerun", "type": "", "message": _message(report)}
    if report.outcome == "failed":
        if report.when in {"setup", "teardown"}:
            message = f'failed on {report.when} with "{_message(report)}"'
            return {"tag": "error", "type": "", "message": _short(message)}
        return {"tag": "failure" if report.when == "call" else "error", "type": "", "message": _message(report)}
    return None


def _collection_entry(report: pytest.CollectReport) -> dict[str, str]:
    if report.failed:
        return {"tag": "error", "type": "", "message": "collection failure", "detail": _message(report)}
    return {"tag": "skipped", "type": "", "message": "collection skipped", "detail": _short(str(report.longrepr))}


def _message(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return _short(str(report.longrepr) if crash is None else crash.message)


def _short(text: str) -> str:
    return text[:_MESSAGE_CHARACTERS]
