"""Real ranks for tests: a test module defines `work(ranks, folder)`, and `results` runs it on 1, 2, 4 ranks.

On the CPU one child imports torch and the module once and then forks every rank, so a test module costs one start.
"""

import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import torch

from drkernel.training.ranks import RankInfo, _free_port, init_distributed
from tests import commands

ROOT = Path(__file__).parents[2]
PATHS = ":".join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def results(module: str, folder: Path, sizes=(1, 2, 4), gpus=False, timeout: float = 180) -> dict[int, list]:
    """What `work` returned: for each number of ranks a list in rank order. Sizes run one after the other."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}
    command = [str(Path(__file__)), module, str(folder)]
    if gpus:
        for size in sizes:
            port = _free_port()
            ranks = [RankInfo(rank, size, rank, size, "127.0.0.1", port).environment() for rank in range(size)]
            finish(
                [subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment | rank) for rank in ranks],
                timeout,
            )
    else:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        done = commands.run([*command, *map(str, sizes)], environment=environment, timeout=timeout)
        assert done.returncode == 0, done.output
    load = lambda size, rank: torch.load(folder / f"{size}_{rank}.pt", weights_only=False)
    return {size: [load(size, rank) for rank in range(size)] for size in sizes}


def finish(children: list[subprocess.Popen], timeout: float) -> None:
    try:
        codes = [child.wait(timeout) for child in children]
        assert not any(codes), "a rank failed"
    finally:
        for child in children:
            child.kill()


def main(module: str, folder: str, *sizes: str) -> int:
    """Fork the ranks of each size, or be the one rank that the environment describes."""
    work = importlib.import_module(module).work
    if not sizes:
        return one(work, Path(folder))
    for size in map(int, sizes):
        port, children = _free_port(), []
        for rank in range(size):
            if not (child := os.fork()):
                os.environ.update(RankInfo(rank, size, rank, size, "127.0.0.1", port).environment())
                os._exit(one(work, Path(folder)))
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            return 1
    return 0


def one(work, folder: Path) -> int:
    try:
        ranks = init_distributed()
        torch.save(work(ranks, folder), folder / f"{ranks.size}_{ranks.rank}.pt")
        return 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
