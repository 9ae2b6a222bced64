"""The NumPy reading of a whole sample: labels, losses and counts by hand, and laws that any right reading obeys."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.subjects import numpy_reading_layers as layers
from harness.subjects.numpy_reading import Reading, directional_derivative, read
from suites.harness.random_weights import HIDDEN, VOCABULARY, config_of, some_tokens, weights_of

# Sums of a few hundred float64 terms in two orders agree to this; nothing below needs more.
CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(scope="module")
def reading() -> Reading:
    config = config_of()
    return read(config, weights_of(config), some_tokens(6), [True, True, False, True, True, True])


def test_labels_and_counts_by_hand(reading: Reading) -> None:
    tokens = some_tokens(6)
    assert reading.counted.tolist() == [True, False, True, True, True, False]
    assert [depth.counted.tolist() for depth in reading.mtp] == [
        [False, True, True, True, False, False],
        [True, True, True, False, False, False],
    ]
    assert [depth.valid.sum() for depth in reading.mtp] == [5, 4]
    assert (reading.main_count, [depth.count for depth in reading.mtp]) == (4, [3, 3])
    heads = [(reading.logits, reading.nll), *((depth.logits, depth.nll) for depth in reading.mtp)]
    for shift, (logits, nll) in enumerate(heads, start=1):
        powers = np.exp(logits)
        expected = [-math.log(powers[t, tokens[t + shift]] / powers[t].sum()) for t in range(6 - shift)]
        np.testing.assert_allclose(nll, np.array([*expected, *[0.0] * shift]), **CLOSE)


def test_total_adds_means_and_coefficients(reading: Reading) -> None:
    balance = sum(reading.balance_sums[name] / reading.balance_lengths[name] for name in reading.balance_sums)
    expected = reading.main_nll_sum / 4 + 0.3 / 2 * sum(depth.nll_sum / 3 for depth in reading.mtp)
    expected += 0.01 * balance + 0.02 * sum(query.sum() for query in reading.kl.values()) / 6
    assert reading.loss == pytest.approx(expected, rel=1e-12)
    assert list(reading.balance_lengths.values()) == [6, 6, 6, 5, 4]
    assert {name: int(counts.sum()) for name, counts in reading.router_counts.items()} == {
        "model.layers.1": 12, "model.layers.2": 12, "model.layers.3": 12, "mtp.0": 10, "mtp.1": 8,
    }  # fmt: skip
    assert list(reading.picks) == ["model.layers.1", "model.layers.3", "mtp.1"]


def test_index_divergence_is_summed_over_queries_and_divided_by_all_tokens() -> None:
    config = config_of()
    weights, tokens = weights_of(config), some_tokens(13)
    with_kl, without = read(config, weights, tokens), read(replace(config, index_kl_coef=0.0), weights, tokens)
    assert list(with_kl.kl) == ["model.layers.1", "model.layers.3", "mtp.1"]
    for queries in with_kl.kl.values():
        assert not queries[:7].any()  # no picked row, then a single one: nothing to diverge from
        assert np.all(queries[7:] > 0.0)
    total = sum(float(query) for queries in with_kl.kl.values() for query in queries)
    assert with_kl.kl_sum == pytest.approx(total, rel=1e-12)
    assert with_kl.loss - without.loss == pytest.approx(0.02 * total / 13, rel=1e-9)


def test_no_supervised_label_gives_zero_and_leaves_the_other_terms() -> None:
    config = config_of()
    nothing = read(config, weights_of(config), some_tokens(5), [False] * 5)
    assert (nothing.main_nll_sum, nothing.main_count, [depth.count for depth in nothing.mtp]) == (0.0, 0, [0, 0])
    balance = sum(nothing.balance_sums[name] / nothing.balance_lengths[name] for name in nothing.balance_sums)
    assert nothing.loss == pytest.approx(0.01 * balance + 0.02 * nothing.kl_sum / 5, rel=1e-12)


def test_sample_shorter_than_the_depths_is_read_without_valid_positions() -> None:
    config = config_of()
    single = read(config, weights_of(config), [3])
    assert [depth.valid.tolist() for depth in single.mtp] == [[False], [False]]
    assert (single.balance_sums["mtp.0"], single.loss > 0.0) == (0.0, True)
    assert not single.router_counts["mtp.1"].any()


def test_values_depend_on_earlier_tokens_only() -> None:
    config = config_of()
    weights, tokens = weights_of(config), some_tokens(33)
    whole = read(config, weights, tokens)
    for cut in (1, 4, 20, 32):
        part = read(config, weights, tokens[:cut])
        np.testing.assert_allclose(part.logits, whole.logits[:cut], **CLOSE)
        for depth, (short, long) in enumerate(zip(part.mtp, whole.mtp, strict=True), start=1):
            valid = max(0, cut - depth)  # later positions of the short sample embed 0 instead of a token
            np.testing.assert_allclose(short.logits[:valid], long.logits[:valid], **CLOSE)


def test_far_token_reaches_a_query_through_windows_only() -> None:
    config = config_of(num_nextn_predict_layers=0, compress_ratios=(0, 0, 0, 5))
    weights, tokens = weights_of(config), some_tokens(24)
    moved = [(tokens[0] + 1) % VOCABULARY, *tokens[1:]]
    base, other = read(config, weights, tokens).logits, read(config, weights, moved).logits
    assert np.all(np.any(base != other, axis=1))
    dense = replace(config, compress_ratios=(0, 0, 0, 0))
    base, other = read(dense, weights, tokens).logits, read(dense, weights, moved).logits
    changed = np.flatnonzero(np.any(base != other, axis=1))
    assert changed.tolist() == list(range(9))  # four layers that each reach two tokens back


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("model.norm.weight", [True, False, False]),
        ("model.hc_head.hc_base", [True, False, False]),
        ("model.layers.3.mlp.experts.down_proj", [True, True, True]),
        ("mtp.0.norm.weight", [False, True, False]),
        ("mtp.0.hc_head.hc_base", [False, True, False]),
        ("mtp.0.self_attn.o_b_proj.weight", [False, True, True]),
        ("mtp.1.hnorm.weight", [False, False, True]),
    ],
)
def test_each_depth_starts_from_the_streams_before_the_last_head(name: str, changed: list[bool]) -> None:
    config = config_of()
    weights, tokens = weights_of(config), some_tokens(6)
    moved = {**weights, name: weights[name] + np.linspace(0.1, 0.2, weights[name].size).reshape(weights[name].shape)}
    here, there = read(config, weights, tokens), read(config, moved, tokens)
    heads = [(here.logits, there.logits), *((a.logits, b.logits) for a, b in zip(here.mtp, there.mtp, strict=True))]
    assert [not np.array_equal(a, b) for a, b in heads] == changed


def test_directional_derivative_matches_the_gradient_of_the_lm_head() -> None:
    config = config_of(num_nextn_predict_layers=0, compress_ratios=(0, 4, 5, 4))
    weights, tokens = weights_of(config), some_tokens(9)
    way = np.random.default_rng(5).standard_normal((VOCABULARY, HIDDEN))
    got = directional_derivative(config, weights, tokens, {"lm_head.weight": way}, lambda r: r.main_nll_sum)
    here = read(config, weights, tokens)
    shares = layers.softmax(here.logits, axis=1) - np.eye(VOCABULARY)[[*tokens[1:], 0]]
    expected = float(np.sum(shares[:-1].T @ here.hidden[:-1] * way))
    assert got == pytest.approx(expected, rel=1e-7)  # rounding of the two ends over the step, about 1e-15 / 1e-6 a term


def test_directional_derivative_refuses_a_step_across_another_choice() -> None:
    config = config_of()
    weights = weights_of(config)
    name = "model.layers.1.mlp.gate.weight"
    with pytest.raises(HarnessError, match="another choice"):
        directional_derivative(config, weights, [1, 2], {name: weights[name]}, lambda r: r.loss, step=3.0)


@pytest.mark.parametrize(
    ("tokens", "supervised", "message"),
    [
        ([], None, "got a sample of 0 tokens"),
        ([1, 2], [True], "got 1 supervised flags; expected 2"),
        ([1, VOCABULARY], None, "position 1"),
        ([-1], None, "got token id -1"),
    ],
)
def test_malformed_samples_are_refused(tokens: list[int], supervised: list[bool] | None, message: str) -> None:
    config = config_of()
    with pytest.raises(HarnessError, match=message):
        read(config, weights_of(config), tokens, supervised)


def test_malformed_configurations_are_refused() -> None:
    with pytest.raises(HarnessError, match="got 1 compress_ratios; expected 6"):
        config_of(compress_ratios=(0,))
    with pytest.raises(HarnessError, match="without beta_slow"):
        config_of(rope_scaling={"factor": 1.0, "original_max_position_embeddings": 8, "beta_fast": 32.0})
