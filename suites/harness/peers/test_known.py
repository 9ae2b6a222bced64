"""The public models that can be asked, and their environments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.catalogue import find_property, find_subject
from harness.conduct.peers import subject_of
from harness.errors import UsageError
from harness.peers import environment
from harness.peers.environment import Environment, make, names, version_in, versions_of
from harness.peers.known import KNOWN, PROPERTIES, find_peers, of_factory


@pytest.mark.parametrize("peer", KNOWN, ids=lambda peer: peer.name)
def test_every_peer_has_an_adapter_and_an_environment_that_can_be_made(peer) -> None:
    assert callable(find_subject(peer.factory))
    assert not peer.environment or peer.environment in names()


def test_names_are_unique_and_properties_exist() -> None:
    assert len({peer.name for peer in KNOWN}) == len(KNOWN)
    assert [find_property(name).name for name in PROPERTIES] == list(PROPERTIES)


def test_peers_by_name() -> None:
    assert find_peers(None) == KNOWN
    assert [peer.name for peer in find_peers(["transformers-packed"])] == ["transformers-packed"]
    with pytest.raises(UsageError, match="got unknown peer 'nemo'; expected one of transformers-alone"):
        find_peers(["nemo"])


def test_a_subjects_name_means_a_peer_wherever_it_runs() -> None:
    nemo = find_peers(["nemo_automodel-packed"])[0]
    subject = subject_of(nemo, Path(".peers"))
    assert subject == f"worker:.peers/nemo_automodel-0.7.0/bin/python:{nemo.factory}"
    assert of_factory(subject) == of_factory(nemo.factory) == nemo
    assert of_factory("v4model") is None


def test_what_is_not_there_is_said_with_the_command_that_makes_it(tmp_path: Path) -> None:
    nothing = Environment("nemo_automodel-0.7.0", tmp_path)
    assert not nothing.exists
    assert nothing.version("nemo_automodel") is None
    assert nothing.command == f"harness peers --make nemo_automodel-0.7.0 --environments {tmp_path}"
    with pytest.raises(UsageError, match=r"got unknown environment 'nemo'; expected one of nemo_automodel-0\.7\.0"):
        make("nemo", folder=tmp_path, pip_flags=())


def test_versions_are_those_of_the_interpreter() -> None:
    assert version_in(sys.executable, "no-such-package") is None
    found = versions_of(find_peers(["transformers-packed"])[0], "harness.subjects.peer_transformers:ByPositions")
    assert found.keys() == {"transformers", "torch"}


@pytest.mark.parametrize("name", names())
def test_pins_name_every_package_with_its_version(name: str) -> None:
    lines = (Path(environment.__file__).parent / "environments" / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(line.count("==") == 1 for line in pins)
    assert len({line.split("==")[0].lower() for line in pins}) == len(pins)
