from drkernel.judge.untrusted.simulated.device import install

install(fake_cuda=False)
