"""The simulated device's trusted half: how much larger the full-size task is, and a roofline model of a GPU.

Its other half, Triton's interpreter that counts what kernels do, is in `untrusted.simulated`.
"""
