"""Cases that were violated once, one file a case; `harness explain TOKEN --test FILE` writes them."""
