"""A task's source in canonical form: what a small policy reads (`policy.prompts=canonical`).

    class Model(nn.Module):                           class Model:
        \"\"\"Scales after a convolution.\"\"\"                 def __init__(self, c0):
        def __init__(self, width: int, gain=0.5):             self.m0 = nn.Conv2d(c0, c0, 3)
            super().__init__()                                self.m1 = 0.5
            self.conv = nn.Conv2d(width, width, 3)    ->      def forward(self, in0):  # in0: (8, 16, 32, 32)
            self.gain = gain                                  t0 = self.m0(in0)  # m0: nn.Conv2d(16, 16, 3)
        def forward(self, x):                                 t1 = torch.relu(t0)
            x = torch.relu(self.conv(x))                      t2 = t1 * self.m1  # m1: 0.5
            return x * self.gain                              return t2

Comments, docstrings, annotations and layout are gone. Arguments, attributes and variables are numbered. `forward` has
one operator a line, and says beside it what is known of its modules and values (flat.py). Constants of the file stand
where they are used, and inputs are told by their shapes (inputs.py).

A submission has to keep the order of arguments and parameters, not their names. So one that is written for the
canonical form is one for the task, and `Canonical.written` makes it of one that was written for the source itself.
"""

from drkernel.policy.canonical.form import Canonical, canonical

__all__ = ["Canonical", "canonical"]
