"""Environment variables by which an examiner tells a runner on a GPU what is its own."""

KERNELS = "DRKERNEL_KERNELS"
"""The folder that the submission's compiled kernels will be put into."""
PRODUCTS = "DRKERNEL_PRODUCTS"
"""Set where the submission will most likely multiply matrices."""
