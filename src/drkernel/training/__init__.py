"""From trajectories to a better policy: packing, update, checkpoints, the run folder and its reports.

train.py shows the loop. What it calls, part by part:

    what a run is built of   build, trainer, loading, sharding, optimizers, offload, ranks, seeds
    a step                   sampler, sharded_rollout, overlap, judging, group_engine, rollout_metrics, packing, update
    what outlives it         run, checkpoint, saving, preemption, completions, export
    what tells of it         opening, progress, rejections, speed, timer, metric_names, validation, report, view, page
    before it begins         plan (memory), step_time (seconds), flops
    a supervised stage       sft, sft_data, sft_sources, supervised
"""
