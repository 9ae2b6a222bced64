"""How fast a step is, and how that compares with what the machine can do."""
