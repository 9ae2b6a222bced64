"""Packed against padded: steps in turns, and what is counted of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from v4model import cli, presets
from v4model.data import Recipe, load_packs, load_tokenizer, open_source
from v4model.train.compare import Comparison, Pair, compare
from v4model.train.engines import engine_of
from v4model.train.feed import Feed
from v4model.train.settings import TrainSettings


def test_both_layouts_take_the_same_tokens_and_the_same_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    config, source, tokenizer = presets.tiny(), open_source(None), load_tokenizer("v4")
    feeds: Mapping[str, Feed] = {
        mode: Feed(
            load_packs(
                source,
                tokenizer=tokenizer,
                recipe=Recipe(window=160, mode=mode, too_long="truncate", unsupervised="drop"),  # type: ignore[arg-type]
                cache=None,
            ),
            config,
            2,
        )
        for mode in ("best-fit", "padded")
    }
    engine = engine_of(TrainSettings(config=config, steps=6, packs_per_step=2))
    seen: list[tuple[int, int]] = []
    gradients = engine.gradients

    def noting(packs):  # type: ignore[no-untyped-def]
        seen.append((sum(pack.layout.total for pack in packs.own), packs.real_tokens))
        return gradients(packs)

    monkeypatch.setattr(engine, "gradients", noting)
    done: list[None] = []
    found = compare(
        engine, packed=feeds["best-fit"], padded=feeds["padded"], pairs=2, warmup=1, done=lambda: done.append(None)
    )
    assert len(found.pairs) == 2
    assert len(done) == 3
    assert [tokens for tokens, _ in seen] == [320] * 6
    # Which layout goes first alternates.
    packed, padded = ([feeds[mode].step(step).real_tokens for step in range(3)] for mode in feeds)
    assert [real for _, real in seen] == [packed[0], padded[0], padded[1], packed[1], packed[2], padded[2]]
    assert all(pair.packed_real > pair.padded_real > 0 for pair in found.pairs)


def test_ratios_and_rates() -> None:
    def pair(packed: float, padded: float) -> Pair:
        return Pair(
            packed_seconds=packed,
            padded_seconds=padded,
            packed_real=100,
            padded_real=20,
            packed_supervised=50,
            padded_supervised=5,
        )

    found = Comparison((pair(1.0, 1.0), pair(3.0, 2.0), pair(1.0, 2.0)))
    assert found.ratio == (1.0, 0.5, 1.5)
    assert found.rate("packed", "real") == 60
    assert found.rate("padded", "supervised") == 3
    assert found.factor("real") == 5
    assert found.factor("supervised") == 10


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare-layouts", "--preset", "tiny", "--window", "160", "--pairs", "2"]
    assert cli.run_cli([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["real_factor"] > 1
    assert found["step_time_ratio"]["least"] <= found["step_time_ratio"]["median"]
    assert len(found["pairs"]) == 2
    assert cli.run_cli([*words, "--device", "cuda"]) in (0, 2)
