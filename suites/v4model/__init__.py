"""The model tested part by part; folders mirror v4model."""
