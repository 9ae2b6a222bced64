"""A night in one command: what its stages are, how they share its time, and how it goes on where it was ended."""
