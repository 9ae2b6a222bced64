"""Fast twins against their plain ones: on a GPU where there is one, else in Triton's interpreter where it is installed."""
