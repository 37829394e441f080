"""Complement cross entropy in fused kernels: C on the CPU, Triton on a GPU, and what chooses between them and torch."""
