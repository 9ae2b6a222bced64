"""Every property on every kind, on one rank and on several: the harness run as tests."""
