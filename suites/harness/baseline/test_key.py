"""The configuration as a folder's name."""

from __future__ import annotations

import pytest

from harness.baseline.key import checked_key, differences, key_of
from harness.errors import UsageError

FACTS = {
    "device": "cpu",
    "dtype": "float64",
    "torch": "2.13.0",
    "python": "3.11",
    "megatron-core": "0.16.1",
    "profile": "quick",
    "gates": "none",
    "seed": "7",
}


def test_the_key_names_what_decides() -> None:
    assert key_of(FACTS) == "cpu-float64-torch2.13.0-python3.11-mcore0.16.1-quick"
    assert (
        key_of(FACTS | {"gates": "gpu, slow/all"})
        == "cpu-float64-torch2.13.0-python3.11-mcore0.16.1-quick-gpu_slow_all"
    )
    assert key_of({"seed": "7"}) is None
    assert key_of(None) is None


@pytest.mark.parametrize("field", ["device", "dtype", "torch", "python", "megatron-core", "profile", "gates"])
def test_every_deciding_fact_makes_a_difference(field: str) -> None:
    assert differences(FACTS, FACTS | {field: "other"}) == [f"{field} other, was {FACTS[field]}"]
    assert differences(FACTS, {k: v for k, v in FACTS.items() if k != field}) == [
        f"{field} not said, was {FACTS[field]}"
    ]
    assert differences(FACTS, FACTS | {"seed": "8"}) == []


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "é"])
def test_a_key_is_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError, match="--key"):
        checked_key(name)
    assert checked_key("theirs-3.11") == "theirs-3.11"
