"""The whole model: outputs, losses, MTP and precision."""
