"""Layouts, windows and visibility, against the specification read token by token."""
