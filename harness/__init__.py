"""The checking harness: properties of packed-sequence models, with verdicts, witnesses and replay tokens."""
