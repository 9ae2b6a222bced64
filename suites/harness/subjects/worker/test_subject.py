"""A subject in a second process gives what it gives in this one, to the bit, and its failures are verdicts."""

from __future__ import annotations

import gc
import os
import re
import select
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.errors import UsageError
from harness.properties.runs import run_with_gradients
from harness.subjects.protocol import Subject, SubjectFactory, Unsupported
from harness.subjects.resolve import subject_factory
from harness.subjects.worker.process import WorkerFailure, worker_of
from harness.subjects.worker.spec import WorkerSpec
from harness.subjects.worker.subject import RemoteFactory
from harness.verdict import Outcome
from suites.harness import fakes
from suites.harness.subjects import toy
from suites.repo import tree

CONFIG = "all,balance_coef=0.0,index_kl_coef=0.0"
CASE = Case.from_token(f"{CONFIG}/5p3.33.17+64/s1")
V4MODEL = "harness.subjects.v4model_one_rank:build"


def spec_of(factory: str, *, name: str = "") -> WorkerSpec:
    """A worker on this interpreter. name: another one has another process."""
    return WorkerSpec(name=name or factory, python=sys.executable, factory=factory, paths=(str(tree.ROOT),))


def toy_spec(attribute: str) -> WorkerSpec:
    """Of a toy."""
    return spec_of(f"{toy.__name__}:{attribute}")


def built(factory: SubjectFactory, case: Case = CASE) -> Subject:
    """The subject of a case."""
    return factory(case.v4config(), case.torch_dtype(), case.seed)


@pytest.fixture
def failing() -> Iterator[list[WorkerSpec]]:
    """Workers of the specs put in are ended with the test."""
    specs: list[WorkerSpec] = []
    yield specs
    for spec in specs:
        worker_of(spec)[0].close()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("given", [True, False], ids=["embeddings", "lookup"])
@pytest.mark.parametrize("place", [f"{toy.__name__}:Toy", V4MODEL], ids=["toy", "v4model"])
def test_values_and_gradients_are_the_same_bits(place: str, dtype: str, *, given: bool) -> None:
    case = replace(CASE, dtype=dtype)
    here, there = built(subject_factory(place), case), built(RemoteFactory(spec_of(place)), case)
    pack = case.pack(fakes.corpus())
    embeddings = here.embeddings(pack) if given else None
    assert torch.equal(there.embeddings(pack), here.embeddings(pack))
    got = run_with_gradients(there, pack, embeddings=embeddings)
    expected = run_with_gradients(here, pack, embeddings=embeddings)
    for one, two in zip(got.observation.depths, expected.observation.depths, strict=True):
        assert torch.equal(one.values, two.values)
        assert torch.equal(one.nll, two.nll)
        assert torch.equal(one.valid, two.valid)
    assert got.observation.counts == expected.observation.counts
    for name in ("sums", "losses"):
        ours, theirs = getattr(got.observation, name), getattr(expected.observation, name)
        assert {key: value.item() for key, value in ours.items()} == {
            key: value.item() for key, value in theirs.items()
        }
        assert [value.requires_grad for value in ours.values()] == [value.requires_grad for value in theirs.values()]
    assert got.of_parameters.keys() == expected.of_parameters.keys()
    assert [
        name for name, grad in expected.of_parameters.items() if not torch.equal(got.of_parameters[name], grad)
    ] == []
    if given:
        assert got.of_embeddings is not None
        assert expected.of_embeddings is not None
        assert torch.equal(got.of_embeddings, expected.of_embeddings)


def test_what_is_never_reached_has_no_gradient_edge() -> None:
    there, pack = built(RemoteFactory(toy_spec("Toy"))), CASE.pack(fakes.corpus())
    leaves = there.parameters()
    trunk = there.observe(pack).depths[0].values.sum()
    grads = torch.autograd.grad(trunk, list(leaves.values()), allow_unused=True)
    assert [name for name, grad in zip(leaves, grads, strict=True) if grad is None] == ["head.1", "head.2"]


def test_a_graph_can_be_asked_twice_and_is_forgotten() -> None:
    there, pack = built(RemoteFactory(toy_spec("Toy"))), CASE.pack(fakes.corpus())
    leaf = there.parameters()["gate"]
    sums = there.observe(pack).sums
    one, two = (torch.autograd.grad(sums["main"], leaf, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)
    worker, _ = worker_of(toy_spec("Toy"))
    before = len(worker._released)
    del sums
    gc.collect()
    assert len(worker._released) == before + 1


def test_a_parameter_changed_here_counts_there() -> None:
    there, pack = built(RemoteFactory(toy_spec("Toy"))), CASE.pack(fakes.corpus())
    here = built(toy.Toy)
    for subject in (there, here):
        with torch.no_grad():
            subject.parameters()["gate"].mul_(1.5)
    with torch.no_grad():
        got, expected = there.observe(pack), here.observe(pack)
    assert torch.equal(got.depths[2].values, expected.depths[2].values)


def test_layer_outputs_and_weights_come_along() -> None:
    here, there = (built(factory) for factory in (subject_factory(V4MODEL), RemoteFactory(spec_of(V4MODEL))))
    pack = CASE.pack(fakes.corpus())
    ours, theirs = (subject.layer_outputs(pack) for subject in (there, here))  # type: ignore[attr-defined]
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    weights, expected = (subject.export_weights() for subject in (there, here))  # type: ignore[attr-defined]
    assert {name: weight.tobytes() for name, weight in weights.items()} == {
        name: weight.tobytes() for name, weight in expected.items()
    }


def test_what_it_declares_is_known_before_it_is_built() -> None:
    factory = RemoteFactory(toy_spec("WithoutMtp"))
    assert factory.unsupported == toy.WithoutMtp.unsupported
    verdict = decide(find_property("packed_equals_alone"), factory, CASE, fakes.corpus(), fault=None)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "MTP depths: the toy predicts one token" in verdict.reason


def test_what_it_raises_as_unsupported_is_that_here() -> None:
    there = built(RemoteFactory(toy_spec("ForgetsMtp")))
    with pytest.raises(Unsupported, match="it gives logits of 1 depths, the configuration has 3"):
        there.observe(CASE.pack(fakes.corpus()))


def test_what_a_worker_prints_breaks_nothing_and_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    there, here = built(RemoteFactory(toy_spec("Printing"))), built(toy.Toy)
    pack = CASE.pack(fakes.corpus())
    with torch.no_grad():
        got = there.observe(pack)
        assert capfd.readouterr() == ("", "")
        assert torch.equal(got.depths[0].values, here.observe(pack).depths[0].values)


def test_a_worker_that_dies_is_a_sentence_and_the_next_one_works(failing: list[WorkerSpec]) -> None:
    failing.append(toy_spec("Dying"))
    factory = RemoteFactory(failing[0])
    there = built(factory)
    message = "^worker .*:Dying died at observe, exit code 7; it last printed: CUDA error: an illegal memory access$"
    with pytest.raises(WorkerFailure, match=message):
        there.observe(CASE.pack(fakes.corpus()))
    assert built(factory).name == "dying toy"
    verdict = decide(find_property("packed_equals_alone"), factory, CASE, fakes.corpus(), fault=None)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "an illegal memory access" in verdict.reason


def test_a_silent_worker_is_ended_at_its_deadline(failing: list[WorkerSpec]) -> None:
    failing.append(toy_spec("Silent"))
    there = built(RemoteFactory(failing[0]))
    worker, _ = worker_of(failing[0])
    worker.deadline_s, began = 0.3, time.monotonic()
    with pytest.raises(
        WorkerFailure, match=r"gave no answer to observe within 0.3 s; it last printed: waiting for rank 1$"
    ):
        there.observe(CASE.pack(fakes.corpus()))
    assert not worker.alive
    assert time.monotonic() - began < 15


def test_an_exception_there_is_one_line_here_with_the_trace_as_a_note() -> None:
    there = built(RemoteFactory(toy_spec("Raising")))
    with pytest.raises(
        WorkerFailure, match=r"^ValueError: mat1 and mat2 shapes cannot be multiplied \(at observe, in worker"
    ) as caught:
        there.observe(CASE.pack(fakes.corpus()))
    assert "\n" not in str(caught.value)
    assert "in about_to_run" in caught.value.__notes__[0]
    assert worker_of(toy_spec("Raising"))[0].alive


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("no_such_module:Mine", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{toy.__name__}:Absent", "no 'Absent' in"),
        (f"{toy.__name__}:WIDTH", "got int; expected a callable"),
    ],
)
def test_a_factory_that_is_not_there_is_bad_input(factory: str, words: str, failing: list[WorkerSpec]) -> None:
    failing.append(spec_of(factory))
    with pytest.raises(UsageError, match=words):
        RemoteFactory(failing[0])


def test_an_interpreter_without_torch_is_bad_input(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n", encoding="utf-8"
    )
    script.chmod(0o755)
    with pytest.raises(UsageError, match="died at load, exit code 1; it last printed: ModuleNotFoundError") as caught:
        RemoteFactory(WorkerSpec(name="mine", python=str(script), factory="a:b"))
    assert caught.value.where == "subject mine"


def test_environment_variables_are_there_from_the_start(failing: list[WorkerSpec]) -> None:
    failing.append(replace(toy_spec("Toy"), name="warm", environment=(("PYTHONWARNINGS", "bogus"),)))
    RemoteFactory(failing[0])
    worker, _ = worker_of(failing[0])
    assert "Invalid -W option ignored" in worker._last_lines()


_ASKS = """
import sys
from harness.subjects.worker import frames, process
from harness.subjects.worker.subject import RemoteFactory
from suites.harness import fakes
from suites.harness.subjects.worker.test_subject import CASE, built, toy_spec

there = built(RemoteFactory(toy_spec("Silent")))
worker, _ = process.worker_of(toy_spec("Silent"))
sends = frames.send

def told(*given):
    sends(*given)
    print(worker._process.pid, flush=True)

frames.send = told
there.observe(CASE.pack(fakes.corpus()))
"""


def test_a_worker_that_computes_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _ASKS], cwd=tree.ROOT, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        handle = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    _wait_for_end(handle)


def _wait_for_end(handle: int) -> None:
    try:
        assert select.select([handle], [], [], 60)[0], "the worker outlived its parent"
    finally:
        os.close(handle)


def test_a_worker_needs_torch_and_numpy_alone() -> None:
    code = (
        "import sys, harness.subjects.worker.serve, harness.subjects.adapter, v4model.pack, v4model.presets\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=True)
    metadata = tomllib.loads(tree.text("pyproject.toml"))["project"]
    named = [*metadata["dependencies"], *metadata["optional-dependencies"]["test"]]
    declared = {re.split(r"[<>=]", name)[0].replace("-", "_") for name in named} - {"torch", "numpy"}
    assert {"hypothesis", "typer", "transformers"} <= declared
    assert declared & set(run.stdout.split()) == set()


def test_the_folder_of_these_packages_stays_off_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: list[WorkerSpec]
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = WorkerSpec(
        name="alone", python=sys.executable, factory=f"{toy.__name__}:Toy", environment=(("PYTHONPATH", ""),)
    )
    failing.append(alone)
    with pytest.raises(UsageError, match="No module named 'suites'"):
        RemoteFactory(alone)
