"""A task in canonical form: what a small policy reads (`policy.prompts=canonical`), and writes.

    class Model(nn.Module):                          def forward(self, in0):  # in0: (8, 16, 32, 32)
        \"\"\"Scales after a convolution.\"\"\"                t0 = F.conv2d(in0, self.m0.weight, self.m0.bias)  # ...
        def __init__(self, width: int, gain=0.5):        t1 = F.relu(t0)
            super().__init__()                           t2 = t1 * 0.5
            self.conv = nn.Conv2d(width, width, 3)       return t2
            self.gain = gain
        def forward(self, x):
            x = torch.relu(self.conv(x))
            return x * self.gain

`forward` runs once on tensors without data, and what is read are the calls that PyTorch sees (trace.py), each in one
spelling (calls.py). Modules, methods, loops, branches and names that somebody invented are gone.

A submission keeps the reference's constructor, since it has to have the same parameters. So a completion has kernels
and `forward` alone, in canonical names, and of `forward` only what differs (edits.py): `t1` stands for the lines that
compute it, at other sizes too (sizes.py), and a call stands for all blocks that are alike (repeats.py). Of a long
program the first lines are told. `Canonical.submission` makes a whole file of it (form.py).
"""

from drkernel.policy.canonical.form import Canonical, canonical

__all__ = ["Canonical", "canonical"]
