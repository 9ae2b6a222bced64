"""The names that other code relies on exist and are importable from the package itself."""

from __future__ import annotations

import pytest

import v4model


@pytest.mark.parametrize("name", ["V4Config", "V4Model", "Pack", "PackLayout", "presets", "hf"])
def test_the_package_exports(name: str) -> None:
    assert hasattr(v4model, name)


@pytest.mark.parametrize(
    "path",
    [
        "V4Config.from_hf",
        "Pack.from_samples",
        "PackLayout.from_lengths",
        "PackLayout.single",
        "PackLayout.from_cu_seqlens",
        "PackLayout.from_position_ids",
        "PackLayout.from_megatron",
        "V4Model.embed",
        "presets.tiny",
        "presets.three_kinds",
        "presets.flash",
        "presets.pro",
        "hf.load",
        "hf.export",
    ],
)
def test_the_contract_name_is_callable(path: str) -> None:
    found: object = v4model
    for part in path.split("."):
        found = getattr(found, part)
    assert callable(found)
