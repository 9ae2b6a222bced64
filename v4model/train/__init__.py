"""Training on packs: settings, steps, records, checkpoints, and the proof of isolation before the first step."""
