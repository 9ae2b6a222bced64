"""Dense layers (ratio 0): the sliding window only, never full attention."""

from v4model.layers.attention.base import Attention


class DenseAttention(Attention):
    """Local tokens and the sink; RoPE of the main theta without YaRN."""
