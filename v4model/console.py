"""What command lines share: how they end (an exit code, one sentence for bad input, no stack trace) and progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from v4model.errors import V4Error

INTERRUPTED = 130
USAGE = 2


def run_app(app: typer.Typer, arguments: list[str], *, name: str, refused: type[Exception]) -> int:
    """Run one command line of `app` and return its exit code; `refused` and wrong usage are one sentence and 2."""
    try:
        code = app(args=arguments, prog_name=name, standalone_mode=False)
    except refused as error:
        return _refuse(name, str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        # A reader that has left is no error (see `exit_with`), and one without the system's words is none of a file.
        if isinstance(error, BrokenPipeError) or error.strerror is None:
            raise
        where = "" if error.filename is None else str(error.filename)
        return _refuse(name, str(V4Error(got=error.strerror, expected="a file or folder to use", where=where)))
    except Exception as error:
        # typer's own usage errors; their class sits in click or in typer, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        if message.startswith("Usage:"):  # nothing was asked for: the whole help
            print(message)
            return USAGE
        return _refuse(name, " ".join(message.split()))
    return code if isinstance(code, int) else 0


def exit_with(run: Callable[[list[str]], int]) -> None:
    """End the process with the code of its command line, also where the reader (`head`, say) has left."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _refuse(name: str, sentence: str) -> int:
    print(f"{name}: {sentence}", file=sys.stderr)
    return USAGE


@contextmanager
def progress(what: str, *, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """A bar on stderr while the context lasts; call what it gives for each of `total` steps, `done` of which are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda: bar.advance(task)
