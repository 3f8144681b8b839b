"""`python train.py -m hydra/launcher=slurm`: every run of the sweep becomes a Slurm job, through submitit.

Unlike hydra-submitit-launcher, whose place it takes, this one

    returns once the jobs are submitted, and submits only runs that are neither finished nor in the queue: the same
    command again starts what failed and nothing else;
    runs a snapshot of the code and conf/ as they were when the sweep was submitted;
    requeues after timeouts without end, and after crashes (drkernel.slurm.guard);
    starts one rank per task, any of which may fail without the others waiting for it.
"""

# Hydra executes this file without making it a module, so there can be no dataclass in it.

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
from omegaconf import OmegaConf, open_dict

from drkernel.slurm.options import SlurmConfig

ConfigStore.instance().store(group="hydra/launcher", name="slurm_schema", node=SlurmConfig, provider="drkernel")


class SweepLauncher(SlurmLauncher):
    """Submits a sweep as one job array."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from drkernel.slurm import sweep

        folder = Path(self.config.hydra.sweep.dir).absolute()
        planned = [sweep.Planned(list(o), *self._folder_and_steps(list(o), folder)) for o in job_overrides]
        print(sweep.submit(planned, folder, self.params))
        return []

    def _folder_and_steps(self, overrides: list[str], folder: Path) -> tuple[str, int | None]:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = "unknown", 0
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        try:
            return str(folder / str(config.hydra.sweep.subdir)), OmegaConf.select(config, "trainer.steps")
        finally:
            HydraConfig.instance().cfg = before
