"""The kill matrix, on a model of a few lines."""
