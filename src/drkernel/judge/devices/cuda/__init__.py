"""The judge on real GPUs. The folder says which process a module runs in.

devices/cuda, trusted: the process of the judge, examiners (one or more per GPU) and compile workers (no GPU)

    backend         the judge's process: sends submissions to compile workers and examiners
    job_queue       which examiner gets which job: one that has the task prepared, where possible
    gpu_lock        locks of a GPU among all examiners of the host: shared for correctness, exclusive for timing
    compile_worker  a worker that checks a submission statically and compiles its kernels
    precompile      has a tracer find and compile kernels, and takes its replies apart
    ptxas           runs ptxas on untrusted PTX
    examiner        a worker that prepares tasks and examines submissions on one GPU
    device          the examination's device: references at published sizes, coverage and times
    runner_pool     runners that are started ahead of time, one per submission
    buffers         device memory shared with runners, and the reference's blocks of calls
    timer           times a submission against the reference, interleaved
    stopwatch       times variants of a reference, interleaved, in one trusted process
    interleaving    what both timers share: order, size of a block, cold cache, intervals
    timing          the outcome of timing a submission
    fused           Triton kernels that compare outputs
    baselines       a command: times of other baselines, and the store that keeps them

boundary/cuda: imported on both sides

    setup               environment and CUDA context of a process
    runner_environment  environment variables of runners
    driver              calls of the CUDA driver that PyTorch does not offer
    device_memory       tensors in device memory that two processes map, with a semaphore
    calls               calls that are timed by events, enqueued behind a semaphore
    recorder            launches and operators of a forward, and their times
    kernel_cache        compiled kernels by key
    kernel_description  a kernel that was not compiled ahead, as a message

untrusted/cuda: beside submissions; nothing that they reply is believed

    runner          executes one submission on a GPU
    streams         whether a forward waits for all that it starts on other streams
    tracer          finds the kernels of one submission without a GPU
    meta_as_cuda    meta tensors that pass for CUDA tensors, for the tracer
"""
