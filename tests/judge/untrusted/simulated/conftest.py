from drkernel.judge.untrusted.simulated.device import install

install(cuda_shim=False)
