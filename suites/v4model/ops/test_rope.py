"""RoPE: pairs, inverse, relative positions, and YaRN's ramp worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from suites.v4model.support import randn, relative_error
from v4model.config import Yarn
from v4model.ops.rope import inverse_frequencies, rotate, rotations

POSITIONS = torch.tensor([0, 1, 5, 1000, 1_000_000])
PLAIN = inverse_frequencies(8, theta=10000.0, yarn=None)


def test_frequencies_fall_from_one() -> None:
    expected = [10000.0 ** (-2 * i / 8) for i in range(4)]
    torch.testing.assert_close(PLAIN, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("width", "theta", "yarn"),
    [
        (64, 160000.0, Yarn(factor=16.0, original_max_position_embeddings=65536)),  # as released: pairs 15 to 25
        (8, 160000.0, Yarn(factor=4.0, original_max_position_embeddings=64)),  # as in the tiny preset
        (64, 10000.0, Yarn(factor=40.0, original_max_position_embeddings=4096, beta_fast=16.0, beta_slow=2.0)),
    ],
)
def test_yarn_ramp_by_hand(width: int, theta: float, yarn: Yarn) -> None:
    def c(beta: float) -> float:
        length = yarn.original_max_position_embeddings
        return width * math.log(length / (2 * math.pi * beta)) / (2 * math.log(theta))

    low, high = max(math.floor(c(yarn.beta_fast)), 0), min(math.ceil(c(yarn.beta_slow)), width - 1)
    expected = []
    for i in range(width // 2):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        expected.append(theta ** (-2 * i / width) * ((1 - ramp) + ramp / yarn.factor))
    found = inverse_frequencies(width, theta=theta, yarn=yarn)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)
    assert found[0] == 1.0
    assert found[-1] == pytest.approx(theta ** (2 / width - 1) / yarn.factor, rel=1e-14)


def test_released_ramp_runs_from_pair_15_to_25() -> None:
    yarn = Yarn(factor=16.0, original_max_position_embeddings=65536)
    slower = inverse_frequencies(64, theta=160000.0, yarn=None) / inverse_frequencies(64, theta=160000.0, yarn=yarn)
    assert slower[:16].tolist() == [1.0] * 16
    torch.testing.assert_close(slower[25:], torch.full((7,), 16.0, dtype=torch.float64))
    assert (slower[16:25].diff() > 0).all()


def test_ends_that_meet_do_not_divide_by_zero() -> None:
    # c(beta) is the same for both ends and an integer: floor and ceil meet.
    yarn = Yarn(
        factor=4.0, original_max_position_embeddings=1, beta_fast=1 / (2 * math.pi), beta_slow=1 / (2 * math.pi)
    )
    found = inverse_frequencies(8, theta=10000.0, yarn=yarn)
    assert (PLAIN / found).tolist() == pytest.approx([1.0, 4.0, 4.0, 4.0])


def test_pairs_turn_and_the_rest_stays() -> None:
    cos, sin = rotations(
        torch.tensor([3]), frequencies=torch.tensor([0.5, 0.1], dtype=torch.float64), dtype=torch.float64
    )
    a, b, c, d = 1.0, 2.0, 3.0, 4.0
    turned = rotate(torch.tensor([[9.0, 8.0, a, b, c, d]], dtype=torch.float64), (cos, sin))[0].tolist()
    expected = [9.0, 8.0]
    for first, second, angle in [(a, b, 1.5), (c, d, 0.3)]:
        expected.append(first * math.cos(angle) - second * math.sin(angle))
        expected.append(first * math.sin(angle) + second * math.cos(angle))
    assert turned == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("heads", [(), (3,)])
def test_inverse_returns_the_input(heads: tuple[int, ...]) -> None:
    x = randn(len(POSITIONS), *heads, 13)
    rotation = rotations(POSITIONS, frequencies=PLAIN, dtype=torch.float64)
    before = x.clone()
    turned = rotate(x, rotation)
    assert torch.equal(x, before), "out of place"
    assert torch.equal(turned[..., :5], x[..., :5])
    assert relative_error(turned[1:, ..., 5:], x[1:, ..., 5:]) > 0.1
    assert relative_error(rotate(turned, rotation, inverse=True), x) < 1e-15


def test_dot_products_depend_on_the_distance_alone() -> None:
    q, k = randn(1, 8), randn(1, 8, seed=1)

    def dot(query: int, key: int) -> float:
        at = [rotations(torch.tensor([p]), frequencies=PLAIN, dtype=torch.float64) for p in (query, key)]
        return float((rotate(q, at[0]) * rotate(k, at[1])).sum())

    assert dot(7, 3) == pytest.approx(dot(1007, 1003), rel=1e-12)
    assert dot(7, 3) != pytest.approx(dot(7, 4), rel=1e-3)


def test_angles_of_a_bfloat16_model_are_not_rounded() -> None:
    # A table in bfloat16 would know three digits of a position: 1,000,000 would turn by a random angle.
    cos, sin = rotations(POSITIONS, frequencies=PLAIN, dtype=torch.bfloat16)
    assert cos.dtype == sin.dtype == torch.float32
    exact = rotations(POSITIONS, frequencies=PLAIN, dtype=torch.float64)
    assert relative_error(cos.double(), exact[0]) < 2**-24
    x = randn(len(POSITIONS), 8, dtype=torch.float32).bfloat16()
    assert rotate(x, (cos, sin)).dtype == torch.bfloat16
