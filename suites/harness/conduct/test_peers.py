"""Peers are asked at once, and whoever wants the table no more ends what is asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from harness.conduct.peers import ask
from harness.peers.known import find_peers
from harness.peers.result import PeerRow
from suites.repo import tree


def test_what_ends_the_table_ends_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tree.ROOT))

    def interrupted(_: PeerRow) -> None:
        raise KeyboardInterrupt

    # The first of them has no environment, so that its row comes at once; the other one would take minutes.
    with pytest.raises(KeyboardInterrupt):
        ask(
            find_peers(["nemo_automodel-packed", "megatron-core-roll"]),
            folder=tmp_path,
            environments=tmp_path / "none",
            baselines=tmp_path,
            properties=["packed_equals_alone"],
            profile="nightly",
            jobs=2,
            done=interrupted,
        )
    own = tmp_path / "megatron-core-roll"
    with FileLock(own / "lock", timeout=0):
        assert not (own / "report.json").exists()
