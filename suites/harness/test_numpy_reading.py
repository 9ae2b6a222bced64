"""The parts of the NumPy reading against cases worked out by hand."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.subjects import numpy_reading_attention as attention
from harness.subjects import numpy_reading_layers as layers
from harness.subjects.numpy_reading_blocks import BlockNotes, mtp_input
from suites.harness.random_weights import config_of

# Sums of a few hundred float64 terms in two orders agree to this; nothing below needs more.
CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def test_oracle_imports_only_numpy_and_the_standard_library() -> None:
    allowed = {"__future__", "collections", "dataclasses", "math", "typing", "numpy", "harness"}
    folder = Path(layers.__file__).parent
    files = sorted(folder.glob("numpy_reading*.py"))
    assert len(files) == 4
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, (file.name, names)
            ours = {name for name in names if name.startswith("harness")}
            assert all(name == "harness.errors" or ".numpy_reading" in name for name in ours), (file.name, ours)


# --- hyper-connections ---


def test_sinkhorn_normalises_columns_first_then_rows_and_columns() -> None:
    logits = np.log([[3.0, 1.0], [1.0, 1.0]])  # softmax over the last axis: [[3/4, 1/4], [1/2, 1/2]]
    once = layers.sinkhorn(logits, iterations=1, eps=0.0)
    np.testing.assert_allclose(once, [[3 / 5, 1 / 3], [2 / 5, 2 / 3]], **CLOSE)
    twice = layers.sinkhorn(logits, iterations=2, eps=0.0)
    np.testing.assert_allclose(twice, [[36 / 57, 20 / 55], [21 / 57, 35 / 55]], **CLOSE)


def test_sinkhorn_adds_eps_to_the_entries_and_to_each_sum() -> None:
    once = layers.sinkhorn(np.log([[3.0, 1.0], [1.0, 1.0]]), iterations=1, eps=0.1)
    np.testing.assert_allclose(once, [[0.85 / 1.55, 0.35 / 1.05], [0.6 / 1.55, 0.6 / 1.05]], **CLOSE)


def test_comb_is_used_transposed() -> None:
    streams, nothing = np.array([[[2.0], [10.0]]]), np.zeros((1, 1))
    comb = np.array([[[0.0, 3.0], [0.0, 0.0]]])  # comb[0, 1]: from stream 0 into stream 1
    mixed = layers.expand(streams, out=nothing, post=np.zeros((1, 2)), comb=comb)
    np.testing.assert_array_equal(mixed, [[[0.0], [6.0]]])


def test_coefficients_are_laid_out_pre_post_comb_row_major() -> None:
    config = config_of(hc_mult=2, hc_sinkhorn_iters=1, hc_eps=0.1)
    logs = np.log([3.0, 1.0, 1.0, 1.0])
    weights = {"fn": np.zeros((8, 4)), "scale": np.ones(3), "base": np.array([0.0, 0.0, 0.0, math.log(3.0), *logs])}
    pre, post, comb = layers.hyper_coefficients(np.ones((1, 2, 2)), weights=weights, config=config)
    np.testing.assert_allclose(pre, [[0.6, 0.6]], **CLOSE)
    np.testing.assert_allclose(post, [[1.0, 1.5]], **CLOSE)
    np.testing.assert_allclose(comb, [[[0.85 / 1.55, 0.35 / 1.05], [0.6 / 1.55, 0.6 / 1.05]]], **CLOSE)


def test_coefficients_read_the_streams_flattened_one_after_another_and_normed_together() -> None:
    config = config_of(hc_mult=2, hc_eps=0.0, rms_norm_eps=0.5)
    weights = {"fn": np.zeros((8, 4)), "scale": np.array([3.0, 1.0, 1.0]), "base": np.zeros(8)}
    weights["fn"][1, 2] = 1.0  # pre of stream 1 reads channel 0 of stream 1
    pre, _, _ = layers.hyper_coefficients(np.array([[[1.0, 2.0], [3.0, 4.0]]]), weights=weights, config=config)
    normed = 3.0 / math.sqrt((1 + 4 + 9 + 16) / 4 + 0.5)
    np.testing.assert_allclose(pre, [[0.5, 1 / (1 + math.exp(-3.0 * normed))]], **CLOSE)


def test_hyper_head_adds_eps_to_a_plain_sigmoid() -> None:
    config = config_of(hc_mult=2, hc_eps=0.25)
    weights = {"hc_fn": np.zeros((2, 4)), "hc_base": np.array([0.0, math.log(3.0)]), "hc_scale": np.ones(1)}
    out = layers.hyper_head(np.array([[[4.0, 0.0], [0.0, 8.0]]]), weights=weights, config=config)
    np.testing.assert_allclose(out, [[4 * 0.75, 8 * 1.0]], **CLOSE)


# --- rotary positions ---


def test_rope_turns_neighbouring_channels_at_the_end_and_back() -> None:
    x = np.array([[7.0, 1.0, 2.0, 3.0, 4.0]])
    quarter_and_half = np.array([math.pi / 2, math.pi])
    turned = attention.rotate(x, positions=np.array([1.0]), frequencies=quarter_and_half)
    np.testing.assert_allclose(turned, [[7.0, -2.0, 1.0, -3.0, -4.0]], **CLOSE)
    back = attention.rotate(turned, positions=np.array([-1.0]), frequencies=quarter_and_half)
    np.testing.assert_allclose(back, x, **CLOSE)


def test_yarn_divides_slow_frequencies_and_leaves_dense_layers_alone() -> None:
    # theta = e^4 and r = 8 make pair i turn at e^-i, and c(b) = ln(n0 / (2 pi b)): 1.5 and 2.5 here.
    one_turn = 64 / (2 * math.pi)
    betas = {"beta_fast": one_turn * math.exp(-1.5), "beta_slow": one_turn * math.exp(-2.5)}
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64, **betas}
    theta = math.exp(4.0)
    config = config_of(qk_rope_head_dim=8, rope_theta=theta, compress_rope_theta=theta, rope_scaling=yarn)
    plain = np.exp([0.0, -1.0, -2.0, -3.0])
    np.testing.assert_allclose(attention.inverse_frequencies(config, ratio=0), plain, **CLOSE)
    scaled = attention.inverse_frequencies(config, ratio=4)  # low = 1, high = 3: the ramp is 0, 0, 1/2, 1
    np.testing.assert_allclose(scaled, plain * [1.0, 1.0, 1 - 0.5 + 0.5 / 4, 1 / 4], **CLOSE)


# --- windows, picks, softmax ---


def test_first_window_of_csa_gives_its_missing_predecessor_weight_zero() -> None:
    values, gates = np.arange(16.0).reshape(8, 2), np.full((8, 2), -700.0)
    first_values, first_gates = attention.window_slots(values, gates=gates, window=0, ratio=4)
    shares = layers.softmax(first_gates, axis=0)
    assert np.all(shares[:4] == 0.0)
    np.testing.assert_array_equal(shares[4:], np.full((4, 1), 0.25))
    np.testing.assert_array_equal(first_values[4:, 0], values[:4, 1])


def test_later_window_of_csa_takes_first_halves_from_the_window_before() -> None:
    values = np.arange(16.0).reshape(8, 2)
    slots, _ = attention.window_slots(values, gates=values, window=1, ratio=4)
    np.testing.assert_array_equal(slots[:, 0], [0, 2, 4, 6, 9, 11, 13, 15])


def test_hca_row_is_a_gated_mean_of_its_own_tokens_and_drops_the_remainder() -> None:
    x = np.array([[1.0], [5.0], [3.0], [3.0], [9.0]])
    weights = {
        "kv_proj.weight": np.ones((1, 1)), "gate_proj.weight": np.zeros((1, 1)), "kv_norm.weight": np.ones(1),
        "position_bias": np.array([[0.0], [math.log(3.0)]]),
    }  # fmt: skip
    rows = attention.compress(x, weights=weights, ratio=2, frequencies=np.zeros(0), eps=48.0)
    # 1/4 and 3/4 of (1, 5) are 4, of (3, 3) are 3; the norm divides by sqrt(16 + 48) and sqrt(9 + 48)
    np.testing.assert_allclose(rows, [[4 / 8], [3 / math.sqrt(57)]], **CLOSE)


def test_pool_rows_are_turned_to_the_first_token_of_their_window() -> None:
    weights = {
        "kv_proj.weight": np.ones((2, 1)), "gate_proj.weight": np.zeros((2, 1)), "kv_norm.weight": np.ones(2),
        "position_bias": np.zeros((3, 2)),
    }  # fmt: skip
    quarter_after_three = np.array([math.pi / 6])
    rows = attention.compress(np.ones((6, 1)), weights=weights, ratio=3, frequencies=quarter_after_three, eps=0.0)
    np.testing.assert_allclose(rows, [[1.0, 1.0], [-1.0, 1.0]], **CLOSE)


def test_window_is_visible_from_its_last_token_on() -> None:
    assert [attention.visible_windows(t, ratio=4) for t in (0, 2, 3, 6, 7)] == [0, 0, 1, 1, 2]


def test_equal_scores_go_to_the_lower_index_and_zeros_of_both_signs_are_equal() -> None:
    assert layers.largest(np.array([-1.0, -0.0, 0.0, -0.0]), count=2).tolist() == [1, 2]
    assert layers.largest(np.array([0.0, -0.0, 1.0]), count=5).tolist() == [2, 0, 1]
    many = np.tile([0.0, 1.0], 200)  # long enough for an unstable sort to show
    assert layers.largest(many, count=400).tolist() == [*range(1, 400, 2), *range(0, 400, 2)]


def test_picks_stay_among_the_visible_windows() -> None:
    scores = np.tile([1.0, 2.0, 3.0], (12, 1))
    picks = attention.pick_windows(scores, ratio=4, topk=2)
    assert picks == ((),) * 3 + ((0,),) * 4 + ((0, 1),) * 4 + ((1, 2),)


def test_sink_joins_the_softmax_and_alone_leaves_nothing() -> None:
    shares = attention.sink_softmax(np.log([[1.0, 2.0]]), sinks=np.log([5.0]))
    np.testing.assert_allclose(shares, [[1 / 8, 2 / 8]], **CLOSE)
    assert attention.sink_softmax(np.zeros((1, 0)), sinks=np.array([-3.0])).shape == (1, 0)


def test_index_divergence_by_hand() -> None:
    probabilities = np.array([[0.1, 0.2], [0.2, 0.3]])  # summed over heads and renormalised: 3/8, 5/8
    expected = 3 / 8 * math.log(3 / 8 / (1 / 4)) + 5 / 8 * math.log(5 / 8 / (3 / 4))
    got = attention.index_divergence(probabilities, scores=np.log([1.0, 3.0]))
    assert got == pytest.approx(expected, rel=1e-12)
    assert attention.index_divergence(np.zeros((2, 0)), scores=np.zeros(0)) == 0.0


def test_index_score_by_hand() -> None:
    config = config_of(index_n_heads=2, index_head_dim=4)
    weights: dict[str, Any] = {
        "kv_proj.weight": np.ones((8, 1)), "gate_proj.weight": np.zeros((8, 1)), "kv_norm.weight": np.ones(4),
        "position_bias": np.zeros((4, 8)), "q_b_proj.weight": np.array([[3.0, 0, 0, 0, -2.0, 0, 0, 0]]).T,
        "scorer.weights_proj.weight": np.array([[2.0], [7.0]]),
    }  # fmt: skip
    config, x = replace(config, rms_norm_eps=0.0), np.ones((4, 1))
    scores = attention.index_scores(x, latent=x, weights=weights, config=config, frequencies=np.zeros(0))
    # the key is (1, 1, 1, 1); head 0 matches with 3 and head 1 with -2, which the ReLU removes
    np.testing.assert_allclose(scores, np.full((4, 1), 2 * 3 / math.sqrt(2 * 4)), **CLOSE)


def test_attention_of_two_tokens_by_hand() -> None:
    config = config_of(num_attention_heads=1, head_dim=2, qk_rope_head_dim=2, o_groups=1, rms_norm_eps=0.0)
    same = np.eye(2)
    weights: dict[str, Any] = {
        "q_a_proj.weight": same, "q_a_norm.weight": np.ones(2), "q_b_proj.weight": 5.0 * same, "kv_proj.weight": same,
        "kv_norm.weight": np.ones(2), "sinks": np.zeros(1), "o_a_proj.weight": same, "o_b_proj.weight": same,
    }  # fmt: skip
    got = attention.attend(np.array([[1.0, 0.0], [0.0, 1.0]]), weights=weights, config=config, ratio=0)
    root, sine, cosine = math.sqrt(2.0), math.sin(1.0), math.cos(1.0)
    # Norms make the tokens (root, 0) and (0, root), and the 5 in the query vanish; token 1 is turned by 1 radian. Its
    # logits are 2 / root with itself and -2 sin(1) / root with token 0, and 0 for the sink.
    itself, before = math.exp(root), math.exp(-root * sine)
    total = itself + before + 1.0
    last = [root * cosine * before / total, root * (itself - sine * before) / total]
    np.testing.assert_allclose(got.out, [[root * itself / (itself + 1.0), 0.0], last], **CLOSE)
    assert (got.picks, got.divergence) == (None, None)


def test_output_groups_are_consecutive_heads_and_concatenate_group_major() -> None:
    heads = np.array([[[1.0], [2.0], [3.0], [4.0]]])
    weights: dict[str, Any] = {"o_a_proj.weight": np.array([[1.0, 0.0], [0.0, 1.0], [10.0, 0.0], [0.0, 10.0]])}
    weights["o_b_proj.weight"] = np.eye(4)
    np.testing.assert_array_equal(attention.project_out(heads, weights=weights, groups=2), [[1.0, 2.0, 30.0, 40.0]])


# --- experts ---


def test_bias_chooses_experts_but_does_not_weigh_them() -> None:
    config = config_of(n_routed_experts=3, num_experts_per_tok=2, routed_scaling_factor=3.0, swiglu_limit=1.0)
    one = np.ones((1, 1))
    weights: dict[str, Any] = {
        # affinity is the root of softplus; these make it 3, 2 and 1
        "gate.weight": np.log(np.expm1([[9.0], [4.0], [1.0]])),
        "gate.e_score_correction_bias": np.array([0.0, 5.0, 9.0]),
        "experts.gate_up_proj": np.zeros((3, 2, 1)), "experts.down_proj": np.ones((3, 1, 1)),
        "shared_experts.gate_proj.weight": -5.0 * one, "shared_experts.up_proj.weight": 4.0 * one,
        "shared_experts.down_proj.weight": one,
    }  # fmt: skip
    weights["experts.gate_up_proj"][2] = [[4.0], [-4.0]]
    out, routing = layers.mixture(np.ones((1, 1)), tokens=[0], weights=weights, config=config, hashed=False)
    np.testing.assert_allclose(routing.affinity, [[3.0, 2.0, 1.0]], **CLOSE)
    assert routing.chosen.tolist() == [[2, 1]]
    routed = 1 / (1 + 2) * 3.0 * -1.0 / (1.0 + math.exp(-1.0))  # SiLU(min(4, 1)) * clamp(-4, -1, 1)
    shared = -5.0 / (1.0 + math.exp(5.0))  # SiLU(min(-5, 1)) * clamp(4, -1, 1): the gate has no lower bound
    np.testing.assert_allclose(out, [[routed + shared]], **CLOSE)


def test_hash_layer_refuses_a_token_outside_its_table() -> None:
    weights: dict[str, Any] = {"weight": np.ones((2, 1)), "tid2eid": np.array([[0], [1]])}
    with pytest.raises(HarnessError, match="got token id 2; expected an id in"):
        layers.route(np.ones((1, 1)), tokens=[2], weights=weights, config=config_of(), hashed=True)


def test_balance_loss_of_a_sample_by_hand() -> None:
    affinity = np.array([[3.0, 2.0], [4.0, 1.0], [0.0, 1.0]])
    routing = layers.Routing(np.array([[0], [0], [1]]), affinity, learned=True)
    valid = np.array([True, True, False])
    # two valid tokens: counts (2, 0), mean shares (0.7, 0.3), L = 2 / (1 * 2) * 1.4
    assert layers.balance_sum(routing, valid=valid) == pytest.approx(2 * 1.4, rel=1e-12)
    assert layers.balance_sum(routing, valid=np.zeros(3, dtype=np.bool_)) == 0.0
    notes = BlockNotes()
    notes.note_routing("trunk", routing=routing, valid=valid)
    notes.note_routing("empty", routing=routing, valid=np.zeros(3, dtype=np.bool_))
    assert notes.balance_mean() == pytest.approx(1.4, rel=1e-12)


# --- multi-token prediction ---


def test_mtp_reads_the_token_depth_ahead_and_zero_past_the_end() -> None:
    embedded, streams = np.eye(4), np.ones((4, 2, 4))
    weights: dict[str, Any] = {"enorm.weight": np.ones(4), "hnorm.weight": np.ones(4)}
    weights |= {"e_proj.weight": np.eye(4), "h_proj.weight": np.zeros((4, 4))}
    entry = mtp_input(embedded, streams=streams, weights=weights, depth=3, eps=0.75)
    assert entry.shape == (4, 2, 4)
    # mean square of a unit row is 1/4: the norm divides by 1
    np.testing.assert_array_equal(entry[:, 0], [[0, 0, 0, 1], [0] * 4, [0] * 4, [0] * 4])
    np.testing.assert_array_equal(entry[:, 0], entry[:, 1])


def test_mtp_norms_each_stream_of_the_depth_before() -> None:
    streams = np.array([[[1.0, 7.0], [3.0, 4.0]]])
    weights: dict[str, Any] = {"enorm.weight": np.ones(2), "hnorm.weight": np.array([1.0, 10.0])}
    weights |= {"e_proj.weight": np.eye(2), "h_proj.weight": np.array([[0.0, 1.0], [1.0, 0.0]])}
    entry = mtp_input(np.ones((1, 2)), streams=streams, weights=weights, depth=1, eps=11.0)
    first, second = math.sqrt((1 + 49) / 2 + 11), math.sqrt((9 + 16) / 2 + 11)
    np.testing.assert_allclose(entry, [[[70 / first, 1 / first], [40 / second, 3 / second]]], **CLOSE)
