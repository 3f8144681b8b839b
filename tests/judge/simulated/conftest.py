from drkernel.judge.simulated import install

install(cuda_shim=False)
