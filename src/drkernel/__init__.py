"""drkernel: multi-turn reinforcement learning that teaches language models to write fast Triton kernels."""
