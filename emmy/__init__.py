"""emmy: compiles PyTorch programs to GPU kernels and finds the fastest schedule of each by measuring."""

__version__ = "0.1.0"
