"""The arithmetic, against slow twins and torch's own."""
