"""Strata that several faults show in, by the names of `harness.strata`."""

SEVERAL_SAMPLES = ("two samples", "three samples and more")
INTERIOR_PADDING = ("interior padding alone", "padding inside and at the tail")
PADDING = ("padding at the tail alone", *INTERIOR_PADDING)
OFF_THE_GRID = ("start off the CSA grid", "start off the HCA grid")
SEVERAL_WINDOWS = ("sample with several CSA windows", "sample with several HCA windows")
SAMPLE_OVER_RANKS = ("sample over 2 ranks", "sample over 3 ranks", "sample over 4 ranks")
