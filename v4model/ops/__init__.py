"""The model's arithmetic as plain functions of tensors: no parameters, no layout decisions.

Axes: T tokens, W pooled rows (windows), H heads, d head width, r rotary width, K streams, D hidden, E experts, V vocab.
"""
