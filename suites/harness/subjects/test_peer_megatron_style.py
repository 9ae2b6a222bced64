"""The template for trees of the Megatron kind, on the model of this repository behind GPTModel's signature."""

from __future__ import annotations

import pytest

from harness.subjects.peer_megatron_style import packed_seq_params
from suites.harness.subjects.peers import holds
from v4model import PackLayout

SUBJECT = "harness.subjects.peer_megatron_style:OfMegatronV4"


@pytest.mark.parametrize(
    "prop",
    [
        "packed_equals_alone",
        "query_sees_only_its_sample",
        "query_sees_no_future",
        "padding_changes_nothing",
        "matches_plain_reading",
    ],
)
def test_nothing_is_found(prop: str) -> None:
    assert holds(SUBJECT, prop, "all/5p3.33p1.17+64/s3")


def test_a_layout_goes_there_and_back() -> None:
    layout = PackLayout.from_lengths([5, 2, 3], slots=[8, 2, 4], total=14)
    assert PackLayout.from_megatron(packed_seq_params(layout), total=layout.total) == layout
