"""Samples made of a seed, for tests of what happens to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from v4model.data.sources import Located, Sample


def made_samples(lengths: Sequence[int], *, seed: int) -> list[Sample]:
    """Samples of at least two tokens with distinct-looking ids and at least one label each."""
    random = np.random.default_rng(seed)
    samples = []
    for length in lengths:
        supervised = random.random(length) < 0.6
        supervised[random.integers(1, length)] = True
        tokens = random.integers(0, 129_280, length)
        samples.append(Sample(tuple(tokens.tolist()), tuple(supervised.tolist())))
    return samples


def located(samples: Sequence[Sample]) -> list[Located]:
    """The samples as a source gives them."""
    return [(f"record {index + 1}", sample) for index, sample in enumerate(samples)]
