"""The Triton kernels: what runs on the device. Shapes, memory and gradients are the business of the files above."""
