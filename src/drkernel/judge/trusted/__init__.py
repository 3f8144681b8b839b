"""Never executes submitted code: the secret, the references, the expected outputs, the comparison and the verdict.

Devices import this package, and not the other way round: an examination knows its device by the Protocol of
`devices.base` alone, and cost models come in through it. Two modules choose an implementation and so are exceptions:
`processes.worker` starts the process of one device, and `reductions` has kernels of its own for large tensors on a GPU.

Read `judging.py`, `examination.py` and `prepare.py` first. Below them lie, ground first:

    source       the static check
    rounding     the reference once more, with other rounding
    comparison   is an output right?
    sizes        other sizes than the published ones
    cases        values, weights and modes on which a submission is tried
    processes    workers, the zygote, and the client of a runner

Runs in the examiner's process (and `source` in the compile worker's).
"""
