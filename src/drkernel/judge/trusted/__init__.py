"""Never executes submitted code: the secret, the references, the expected outputs, the comparison and the verdict.

Devices import this package, and not the other way round: an examination knows its device by the Protocol of
`devices.base` alone, and cost models come in through it. Two modules choose an implementation and so are exceptions:
`worker` starts the process of one device, and `reductions` has kernels of its own for large tensors on a GPU.

Runs in the examiner's process (and `static_check` in the compile worker's).
"""
