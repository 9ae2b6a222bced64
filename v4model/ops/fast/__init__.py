"""Fast twins of `v4model.ops` for NVIDIA GPUs, in Triton: same names, same arguments, same meaning."""
