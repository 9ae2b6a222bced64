"""Equivalent rewrites: one small module a rewrite, each computing on a subject what the model computes, in another way.

A harness that raises an alarm at one of them would cry wolf at every optimisation. What a rewrite may change is
rounding: where the order of sums is fixed by the layout alone, perturbing a neighbour still moves not one bit.
"""
