"""megatron-core's packed pieces under a V4: its roll of padded packs is found, and nothing where no padding is."""

from __future__ import annotations

import pytest

from harness.subjects.peer_megatron_core import rolled
from suites.harness.subjects.peers import holds
from v4model import PackLayout

SUBJECT = "harness.subjects.peer_megatron_core:build"


def test_a_padded_pack_is_rolled_by_its_real_ends() -> None:
    # Token 3 is padding in front of the second sample; the roll takes token 4 there, and loses it where it belongs.
    once = rolled(PackLayout.from_lengths([3, 2], slots=[4, 4]), times=1)[1]
    assert once.tolist() == [1, 2, -1, -1, -1, 5, -1, -1]


@pytest.mark.parametrize("times", [1, 2])
def test_without_padding_it_is_the_shift_inside_samples(times: int) -> None:
    layout = PackLayout.from_lengths([3, 5, 1])
    assert rolled(layout, times=times)[times].tolist() == layout.ahead(times).tolist()


@pytest.mark.parametrize("prop", ["padding_changes_nothing", "packed_equals_alone", "labels_stay_inside"])
def test_the_padded_roll_is_found(prop: str) -> None:
    assert not holds(SUBJECT, prop, "all/5p3.33p1.17+64/s3")


@pytest.mark.parametrize("prop", ["packed_equals_alone", "query_sees_only_its_sample", "labels_stay_inside"])
def test_nothing_is_found_without_padding_between_samples(prop: str) -> None:
    assert holds(SUBJECT, prop, "all/5.33.17+64/s3")
