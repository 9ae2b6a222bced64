"""transformers as a peer: what it is known for is found, and its single samples raise no alarm."""

from __future__ import annotations

import pytest

from harness.verdict import Outcome
from suites.harness.subjects.peers import holds, verdict

MODULE = "harness.subjects.peer_transformers"
PACK = "5.33.17+64/s3"
ALONE, SAMPLE = "packed_equals_alone", "query_sees_only_its_sample"


@pytest.mark.parametrize("kind", ["csa", "hca"])
@pytest.mark.parametrize("prop", [ALONE, SAMPLE])
def test_compressed_layers_leak_when_packed_by_position_ids(kind: str, prop: str) -> None:
    assert not holds(f"{MODULE}:ByPositions", prop, f"{kind}/{PACK}")


@pytest.mark.parametrize("prop", [ALONE, SAMPLE, "query_sees_no_future"])
def test_dense_layers_are_isolated_when_packed_by_position_ids(prop: str) -> None:
    # NaN comes through its additive mask, and is not asked of it.
    assert holds(f"{MODULE}:ByPositions", prop, f"dense/{PACK}")


def test_the_layer_that_leaks_first_is_named() -> None:
    witness = verdict(f"{MODULE}:ByPositions", SAMPLE, f"all/{PACK}").witness
    assert witness is not None
    assert witness.layer == "layers.1.self_attn"


@pytest.mark.parametrize("way", ["OneAtATime", "PaddedBatch"])
@pytest.mark.parametrize("prop", [ALONE, "query_sees_no_future", "padding_changes_nothing", "matches_plain_reading"])
def test_nothing_is_found_on_single_samples(way: str, prop: str) -> None:
    assert holds(f"{MODULE}:{way}", prop, f"all/{PACK}")


def test_its_losses_are_not_asked_for() -> None:
    found = verdict(f"{MODULE}:OneAtATime", "labels_stay_inside", f"dense/{PACK}")
    assert found.outcome is Outcome.UNDECIDED
    assert "does not support it" in found.reason
