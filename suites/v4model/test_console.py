"""How command lines end."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from v4model.console import INTERRUPTED, USAGE, run_app
from v4model.errors import DataError

# More than a pipe holds, so that the reader has left before all of it is written.
TALKING = """
from v4model.console import exit_with

def run(arguments):
    print("line\\n" * 100_000)
    return 0

exit_with(run)
"""


def run(how: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.command()
    def command(how: str) -> None:
        if how == "refused":
            raise DataError(got="a", expected="b")
        if how == "interrupted":
            raise KeyboardInterrupt
        if how == "broken":
            raise RuntimeError("a defect of ours")
        if how == "full":
            raise OSError(errno.ENOSPC, "No space left on device", "reports/results.jsonl")
        if how == "full, of a file that is open":
            raise OSError(errno.ENOSPC, "No space left on device")
        raise typer.Exit(int(how))

    code = run_app(app, [how] if how else [], name="name", refused=DataError)
    return code, capsys.readouterr().err


def test_codes_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(code, capsys) for code in ("0", "1", "3")] == [(0, ""), (1, ""), (3, "")]
    assert run("refused", capsys) == (USAGE, "name: got a; expected b\n")
    full = "name: got No space left on device; expected a file or folder to use; where: reports/results.jsonl\n"
    assert run("full", capsys) == (USAGE, full)
    nameless = "name: got No space left on device; expected a file or folder to use\n"
    assert run("full, of a file that is open", capsys) == (USAGE, nameless)
    assert run("interrupted", capsys)[0] == INTERRUPTED
    code, said = run("", capsys)
    assert (code, said.startswith("name: Missing argument")) == (USAGE, True)


def test_a_defect_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="a defect of ours"):
        run("broken", capsys)


def test_a_reader_that_leaves_is_no_error_of_ours() -> None:
    command = [sys.executable, "-c", TALKING]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
