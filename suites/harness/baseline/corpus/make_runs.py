"""Makes `runs/` by really running pytest and xdist in the ways a run goes wrong.

`python -m suites.harness.baseline.corpus.make_runs [NAME...]`, with pytest-rerunfailures and pytest-timeout installed;
what it wrote is kept, so tests need neither. Each row is a folder: the project's JUnit file, the JSON lines of our
plugin, and pytest's exit status.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

RUNS = Path(__file__).with_name("runs")
ROOT = Path(__file__).resolve().parents[4]

ALPHA = """
import pytest

@pytest.mark.parametrize("n", range(20))
def test_number(n):
    assert n >= 0
"""
BETA = """
import pytest

class TestBeta:
    @pytest.mark.parametrize("word", ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "lime", "oak", "pine"])
    def test_tree(self, word):
        assert word

    def test_known_failure(self):
        raise ValueError("got 17 trees at 0x7f00aa; expected 3")

    def test_other_known_failure(self):
        assert sum([1, 2, 3]) == 7
"""
GAMMA = """
import pytest

@pytest.mark.skip(reason="needs a GPU")
def test_gpu():
    pass

@pytest.mark.xfail(reason="known to be wrong", strict=True)
def test_wrong():
    assert False

@pytest.mark.parametrize("n", range(8))
def test_last(n):
    assert n < 8
"""
FORTY_TWO = {"test_alpha.py": ALPHA, "test_beta.py": BETA, "test_gamma.py": GAMMA}

CRASH = """
import os
import pytest

@pytest.mark.parametrize("n", range(10))
def test_crash(n):
    os._exit(7)
"""
GATED = "import os, pytest\npytestmark = pytest.mark.skipif('RUN_ALL' not in os.environ, reason='RUN_ALL is not set')\n"
HANG = """
import os, signal, time

def test_killed():
    os.kill(os.getpid(), signal.SIGNAL)
    time.sleep(60)
"""
ODD = r"""
import pytest

class Thing:
    pass

IDS = ["plain", "a[b]", "a::b", "a]b[", "new\nline", "tab\there", "\U0001f600", "\ud800", "\x00", "\x1b[31m", "a|b",
       "`tick`", "@name", "#123", "<b>&amp;", "%25", "a/b.py", "x" * 20_000, "", " ", "\u202eright to left"]

@pytest.mark.parametrize("value", range(len(IDS)), ids=IDS)
def test_odd(value):
    assert value >= 0

@pytest.mark.parametrize("value", [Thing(), Thing()], ids=repr)
def test_address(value):
    assert value

def test_hex_that_is_a_name():
    assert True
"""
PHASES = """
import pytest

@pytest.fixture
def bad_setup():
    raise RuntimeError("no room 12")

@pytest.fixture
def bad_teardown():
    yield
    raise OSError("left behind 3 files")

def test_passes(): pass

def test_setup(bad_setup): pass

def test_teardown(bad_teardown): pass

def test_call_and_teardown(bad_teardown):
    assert 1 == 2

@pytest.mark.xfail(strict=True, reason="thought wrong")
def test_strict(): pass

@pytest.mark.xfail(strict=False, reason="thought wrong")
def test_not_strict(): pass

@pytest.mark.xfail(reason="is wrong")
def test_expected():
    assert 0

def test_skips():
    pytest.skip("not today")
"""
SUBTESTS = """
def test_numbers(subtests):
    for n in range(4):
        with subtests.test(n=n):
            assert n % 2 == 0

def test_fine(subtests):
    for n in range(3):
        with subtests.test(n=n):
            assert n < 3
"""
RERUNS = """
import pathlib
COUNT = pathlib.Path(__file__).with_name("count")

def test_at_the_third_attempt():
    seen = len(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text("x" * (seen + 1))
    assert seen >= 2

def test_never():
    assert 0

def test_always():
    pass
"""
CRASH_AND_PASS = """
import os, pathlib
SEEN = pathlib.Path(__file__).with_name("seen")

def test_one_of_two():
    try:
        SEEN.mkdir()
    except FileExistsError:
        return
    os._exit(9)

def test_fine():
    pass
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run: the project's files, pytest's arguments, and what happens around it."""

    files: dict[str, str]
    arguments: tuple[str, ...] = ()
    family: str = "xunit1"
    folder: str = "."
    environment: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] | None = None  # an earlier pytest in the same place, such as the one --lf looks back to
    terminate: bool = False


def _with(extra: dict[str, str], **changes: str) -> dict[str, str]:
    return {**FORTY_TWO, **extra, **{name.replace("__", "."): text for name, text in changes.items()}}


N2 = ("-n", "2")
ROWS: dict[str, Row] = {
    "base": Row(files=FORTY_TWO),
    "base_n2": Row(files=FORTY_TWO, arguments=N2),
    "base_xunit2": Row(files=FORTY_TWO, family="xunit2"),
    "one_broken": Row(files=_with({"test_alpha.py": ALPHA.replace("n >= 0", "n != 13, 'unlucky'")})),
    "one_removed": Row(files=_with({"test_alpha.py": ALPHA.replace("range(20)", "range(19)")})),
    "one_renamed": Row(files=_with({"test_beta.py": BETA.replace("test_known_failure", "test_known_fault")})),
    "tests_renamed": Row(files=_with({"test_alpha.py": ALPHA.replace("test_number", "test_numbers")})),
    "one_exchanged": Row(
        files=_with(
            {
                "test_alpha.py": ALPHA.replace("n >= 0", "n != 13"),
                "test_beta.py": BETA.replace("== 7", "== 6"),
            }
        )
    ),
    "changed_reason": Row(files=_with({"test_beta.py": BETA.replace("ValueError", "TypeError")})),
    "same_reason": Row(files=_with({"test_beta.py": BETA.replace("17 trees at 0x7f00aa", "4 trees at 0x81bb2c")})),
    "collection_error": Row(files=_with({"test_delta.py": "import no_such_module\n"})),
    "collection_error_n2": Row(files=_with({"test_delta.py": "import no_such_module\n"}), arguments=N2),
    "set_parametrize_n2": Row(
        files=_with(
            {
                "test_sets.py": "import os, pytest\nNAMES = {f'name{n}-{os.getpid()}' for n in range(9)}\n"
                "@pytest.mark.parametrize('name', NAMES)\ndef test_set(name): pass\n"
            }
        ),
        arguments=N2,
    ),
    "ten_crashes_n2": Row(files=_with({"test_crash.py": CRASH}), arguments=N2),
    "ten_crashes_no_restart": Row(files=_with({"test_crash.py": CRASH}), arguments=(*N2, "--max-worker-restart=0")),
    "sigint": Row(files=_with({"test_beta_killed.py": HANG.replace("SIGNAL", "SIGINT")})),
    "pytest_exit": Row(
        files=_with({"test_beta_exit.py": "import pytest\ndef test_exit(): pytest.exit('enough', returncode=0)\n"})
    ),
    "gated": Row(files={name: GATED + text for name, text in FORTY_TWO.items()}),
    "first_failure": Row(files=FORTY_TWO, arguments=("-x",)),
    "keyword": Row(files=FORTY_TWO, arguments=("-k", "last or tree")),
    "last_failed": Row(files=FORTY_TWO, arguments=("--lf",), before=()),
    "one_file": Row(files=FORTY_TWO, arguments=("test_alpha.py", "test_beta.py")),
    "sigterm": Row(files=_with({"test_beta_killed.py": HANG.replace("SIGNAL", "SIGTERM")})),
    "sigterm_n2": Row(
        files=_with({"test_beta_slow.py": "import time\ndef test_slow(): time.sleep(600)\n"}),
        arguments=N2,
        terminate=True,
    ),
    "os_exit": Row(files=_with({"test_beta_exits.py": "import os\ndef test_exits(): os._exit(0)\n"})),
    "conftest_import_error": Row(files=_with({"conftest.py": "import no_such_module\n"})),
    "no_tests": Row(files={"test_nothing.py": ""}),
    "dotted_folders": Row(
        files={
            "v1.2/test_d.py": "def test_a(): pass\n",
            "v1/2/test_d.py": "def test_a(): assert 0, 'the other'\n",
        },
        arguments=("--import-mode=importlib",),
    ),
    "dotted_folders_xunit2": Row(
        files={
            "v1.2/test_d.py": "def test_a(): pass\n",
            "v1/2/test_d.py": "def test_a(): assert 0, 'the other'\n",
        },
        arguments=("--import-mode=importlib",),
        family="xunit2",
    ),
    "other_rootdir": Row(files={f"part/{n}": t for n, t in FORTY_TWO.items()}),
    "inherited": Row(
        files={
            "base.py": "class Base:\n    def test_shared(self): pass\n    def test_other(self): assert 0\n",
            "test_one.py": "from base import Base\nclass TestOne(Base): pass\nclass TestTwo(Base): pass\n",
        }
    ),
    "odd_ids": Row(files={"test_odd.py": ODD}),
    "odd_ids_n2": Row(files={"test_odd.py": ODD.replace(' "\\ud800",', "")}, arguments=N2),
    "groups_n2": Row(
        files={
            "test_groups.py": "import pytest\n@pytest.mark.xdist_group('one')\n"
            "@pytest.mark.parametrize('n', ['a@b', 'c'])\ndef test_grouped(n): pass\ndef test_plain(): pass\n"
        },
        arguments=(*N2, "--dist=" + "load" + "group"),
    ),
    "phases": Row(files={"test_phases.py": PHASES}),
    "subtests": Row(files={"test_subtests.py": SUBTESTS}),
    "reruns": Row(files={"test_reruns.py": RERUNS}, arguments=("--reruns", "2")),
    "crash_and_pass": Row(files={"test_both.py": CRASH_AND_PASS}, arguments=(*N2, "--dist=each")),
    "timeout": Row(
        files={"test_slow.py": "import time\ndef test_slow(): time.sleep(30)\ndef test_fine(): pass\n"},
        arguments=("--timeout", "0.3"),
    ),
    "skipped_module": Row(files=_with({"test_alpha.py": "import pytest\npytest.importorskip('no_such')\n" + ALPHA})),
}


def make(name: str, row: Row) -> None:
    """Run one row in a folder of its own and keep what it left."""
    with tempfile.TemporaryDirectory() as made:
        project = Path(made) / "project"
        for path, text in row.files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
        (project / "pytest.ini").write_text(f"[pytest]\njunit_family = {row.family}\n", encoding="utf-8")
        if row.before is not None:
            _pytest(project, row, row.before, write=False)
        status = _pytest(project, row, row.arguments, write=True)
        kept = RUNS / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        (kept / "status").write_text(f"{status}\n", encoding="utf-8")
        for file in ("junit.xml", "results.jsonl"):
            if (Path(made) / file).exists():
                text = (Path(made) / file).read_bytes().decode("utf-8")
                (kept / file).write_text(_anonymous(text, made), encoding="utf-8", newline="")
        print(f"{name}: status {status}, {', '.join(sorted(p.name for p in kept.iterdir()))}")


def _pytest(project: Path, row: Row, arguments: tuple[str, ...], *, write: bool) -> int:
    out = ["--junitxml=../junit.xml", "--results=../results.jsonl"] if write else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "harness.pytest_results", *arguments, *out]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    process = subprocess.Popen(
        command,
        cwd=project / row.folder,
        env=environment | row.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if row.terminate:
        _wait_for_tests(project.parent / "results.jsonl")
        os.killpg(process.pid, signal.SIGTERM)
    return process.wait(timeout=120)


def _wait_for_tests(results: Path) -> None:
    """Until some tests have finished; this is a tool, not a test, so looking again now and then is fine."""
    for _ in range(600):
        if results.exists() and results.read_text(encoding="utf-8").count('"kind": "test"') >= 20:
            return
        time.sleep(0.1)
    raise TimeoutError("no test finished within a minute")


def _anonymous(text: str, made: str) -> str:
    """Without names of this machine."""
    for path, name in ((made, "TMP"), (sys.prefix, "VENV"), (sys.base_prefix, "PYTHON"), (str(ROOT), "ROOT")):
        text = text.replace(path, name)
    text = re.sub(r'hostname="[^"]*"', 'hostname="machine"', text)
    return re.sub(r'"commit": "[^"]*"', '"commit": ""', text)


def main(names: list[str]) -> None:
    """Make the named rows, or all."""
    for name in names or ROWS:
        make(name, ROWS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
