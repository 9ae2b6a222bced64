"""Training: steps, records, checkpoints, isolation before the first step."""
