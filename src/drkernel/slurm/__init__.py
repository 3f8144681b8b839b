"""Runs as Slurm jobs: which code they run, what happens when one ends badly, and where each stands."""
