"""A module that cannot be imported: what `--subject` may be pointed at."""

NEVER = 1 // 0
