"""Fast twins against their plain ones: on a GPU, or in Triton's interpreter where that is installed."""
