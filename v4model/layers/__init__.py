"""The parts of a block as modules: parameters around the functions of `v4model.ops`."""
