"""The nightly report: reading, history, trends, sections, page."""
