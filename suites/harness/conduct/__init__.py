"""The night: its stages, their time, their ends."""
