"""Modules: parameters around the arithmetic."""
