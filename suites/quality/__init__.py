"""Whether the harness has teeth: faults are caught, healthy subjects are left alone."""
