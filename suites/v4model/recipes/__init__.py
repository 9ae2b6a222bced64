"""The recipes as scripts, and what they ask of the library."""
