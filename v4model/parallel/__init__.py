"""Ranks: the only place that knows process groups."""
