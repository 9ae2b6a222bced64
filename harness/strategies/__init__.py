"""Hypothesis strategies over cases. They draw lengths and a seed, never tensors: shrinking an array goes to ties."""

from harness.strategies.configs import configs
from harness.strategies.lengths import PackSize, corner_lengths, sample_lengths
from harness.strategies.packs import cases

__all__ = ["PackSize", "cases", "configs", "corner_lengths", "sample_lengths"]
