"""Where submissions are tried and timed. Trusted: what runs here never executes submitted code.

`base` says what an examination asks of a device. `simulated` models the times of a GPU on any machine, `cuda` measures
them. Devices import `trusted`; that knows `base` alone (see there).
"""
