"""The keys of conf/hydra/launcher/*.yaml."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SlurmConfig:
    """How a run becomes a Slurm job. None leaves a choice to the cluster."""

    _target_: str = "hydra_plugins.drkernel_launcher.SweepLauncher"
    time: str = "24:00:00"
    """Limit of one start, as Slurm writes it (minutes, H:MM:SS, D-HH:MM:SS). A run goes on after it in another."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    mail: str | None = None
    """Address to write to when a job fails."""
    nodes: int = 1
    tasks_per_node: int = 1
    """Ranks on each node."""
    gpus_per_node: int | None = None
    """GPUs on each node; those beyond tasks_per_node are the judge's."""
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    """Memory on each node."""
    parallel: int = 256
    """Jobs of the sweep that run at the same time."""
    signal_delay_s: int = 600
    """How long before the limit ranks are told to save: more than a step takes."""
    setup: list[str] = field(default_factory=list)
    """Shell commands before the run, such as `module load cuda`."""
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    """Any other option of sbatch, without its dashes."""
