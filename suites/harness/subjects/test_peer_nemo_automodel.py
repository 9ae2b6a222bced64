"""nemo_automodel as a peer, in an environment of its own: three defects, and silence once it is packed correctly."""

from __future__ import annotations

import pytest

from harness.subjects.peer_nemo_automodel import settings
from harness.verdict import Outcome
from suites.harness.subjects.peers import holds, needs_nemo, nemo, verdict
from v4model import presets

PACK = "5.33.17.9+72/s3"
ALONE, SAMPLE, FUTURE = "packed_equals_alone", "query_sees_only_its_sample", "query_sees_no_future"


def test_its_configuration_is_the_models() -> None:
    config = presets.tiny()
    found = settings(config)
    assert found["compress_ratios"] == [0, 4, 16, 4, 0, 4]
    assert found["rope_scaling"]["type"] == "yarn"
    assert found["rope_scaling"]["factor"] == 4.0
    assert found["num_nextn_predict_layers"] == config.num_nextn_predict_layers


@needs_nemo
def test_its_mtp_leaks_in_every_pack_of_several_samples() -> None:
    found = verdict(nemo("AsShipped"), SAMPLE, "dense/16.16.16/s3")
    assert found.outcome is Outcome.VIOLATED
    assert found.witness is not None
    assert found.witness.depth > 0


@needs_nemo
def test_it_gives_wrong_values_off_a_multiple_of_the_ratio_and_right_ones_on_it() -> None:
    trunk = "csa,compress_ratios=4:4,num_nextn_predict_layers=0"
    assert not holds(nemo("AsShipped"), ALONE, f"{trunk}/5.33.17/s3")
    assert holds(nemo("AsShipped"), ALONE, f"{trunk}/8.36.16/s3")
    assert holds(nemo("AsShipped"), SAMPLE, f"{trunk}/5.33.17/s3")


@needs_nemo
def test_a_query_reads_the_future_of_its_own_sample() -> None:
    found = verdict(nemo("AsShipped"), FUTURE, "csa/1.7/s0")
    assert found.outcome is Outcome.VIOLATED
    assert found.witness is not None
    assert found.witness.query is not None
    assert found.witness.source is not None
    assert found.witness.source.token > found.witness.query.token


@needs_nemo
@pytest.mark.parametrize("prop", [ALONE, SAMPLE, FUTURE, "padding_changes_nothing", "matches_plain_reading"])
def test_nothing_is_found_when_it_is_packed_correctly(prop: str) -> None:
    assert holds(nemo("Corrected"), prop, f"all/{PACK}")
