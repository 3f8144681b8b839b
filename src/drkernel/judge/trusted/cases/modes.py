"""Under which modes a submission must be right: evaluation, training, or both."""

from __future__ import annotations

from drkernel.judge.trusted.cases import reference_model, reruns
from drkernel.judge.trusted.outputs import all_same, leaves
from drkernel.tasks.module import Reference


def mode_alternatives(reference: Reference, seed: int) -> list[tuple[bool, ...]]:
    """The values of `training` to test under.

    Each tuple of the list is an alternative: a submission must be right under one of them. It must be right under all
    modes in that tuple, which the cases use in turn.

    - `[(False, True)]` where the mode makes no difference in the reference: then it must make none in a submission.
    - `[(False,)]` where training is random (dropout).
    - `[(True,), (False,)]` where the modes differ otherwise (batch norm): KernelBench runs modules as they are
      constructed, and inference kernels are written for eval.
    """
    model = reference_model.build(reference, seed)
    inputs = reference.inputs(seed)
    evaluated, trained, trained_again = (
        leaves(reruns.forward(model, model.model, inputs, train, s))
        for train, s in ((False, seed), (True, seed), (True, seed + 1))
    )
    if not all_same(trained, trained_again):
        return [(False,)]
    return [(False, True)] if all_same(evaluated, trained) else [(True,), (False,)]
