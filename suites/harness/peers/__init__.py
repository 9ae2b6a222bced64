"""Tests of `harness.peers`."""
