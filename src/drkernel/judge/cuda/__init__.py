"""The judge on real GPUs.

    pipeline    queues: compile workers on CPUs, an examiner per GPU
    compiler    static checks, then `tracer` (untrusted: finds kernels, makes PTX) and `precompile`, `ptxas` (cubins)
    kernelcache what a compiled kernel is filed under; a runner looks up and never makes
    examiner    trusted, owns a GPU: one submission at a time, `exam` asks, `clock` times
    desk        the memory of an examiner, and blocks of calls
    runner      untrusted, one-shot, started ahead of time; `recorder` counts and leaves out launches
    memory, driver, fused, setup, dataless    what these need
    stopwatch   device time in one trusted process, for
    baselines   eager with TF32 and torch.compile, measured once per task and machine

Who holds what: the examiner has the seeds, references, expected outputs, the comparison and the clock that decides. A
runner has the submission, device memory that the examiner lets it map (CUDA IPC: measured to work under Landlock with
all capabilities dropped, and to fail in new namespaces, hence none), and what it was compiled into. Landlock is entered
before CUDA starts, because CUDA's threads must inherit it; the system call filter after, because CUDA could not start
behind it. It forbids to fork and to execute, which is why compilers run elsewhere. What was measured to decide all
this is in results/judge-h200/README.md.
"""
