"""The picture is written, in the format of its ending, and holds every window."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.v4model.data.made import located, made_samples
from v4model.data.packed import pack_samples
from v4model.data.picture import save_picture
from v4model.data.recipe import Recipe
from v4model.data.stats import PackStats, stats_of
from v4model.errors import DataError


@pytest.fixture(scope="module")
def stats() -> list[PackStats]:
    samples = located(made_samples([3, 30, 20, 150], seed=0))
    return [stats_of(pack_samples(samples, recipe=Recipe(window=window)), ratios=(4, 128)) for window in (150, 1024)]


def test_a_picture_is_written(tmp_path: Path, stats: list[PackStats]) -> None:
    save_picture(stats, tmp_path / "stats.png", title="title")
    assert (tmp_path / "stats.png").read_bytes().startswith(b"\x89PNG")
    save_picture(stats, tmp_path / "stats.svg", title="title")
    drawn = (tmp_path / "stats.svg").read_text(encoding="utf-8")
    for text in ("padded (BSHD) 150", "best fit (THD) 1,024", "ratio 128", "1,024: 1 packs"):
        assert f"<!-- {text}" in drawn


@pytest.mark.parametrize("name", ["stats.unknown", "absent/stats.png"])
def test_a_picture_that_cannot_be_saved_is_refused(tmp_path: Path, stats: list[PackStats], name: str) -> None:
    with pytest.raises(DataError, match="a picture that cannot be saved"):
        save_picture(stats, tmp_path / name, title="title")
