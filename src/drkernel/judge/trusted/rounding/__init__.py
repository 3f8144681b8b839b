"""The reference once more with other rounding, as honest kernels round."""
