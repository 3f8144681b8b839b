"""From trajectories to a better policy: packing, update, checkpoints, the run folder and its reports."""
