"""The judge on real GPUs."""
