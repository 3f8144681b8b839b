"""The processes of one submission: one at a time, and each finds its compiled kernels."""

from __future__ import annotations

import json

from drkernel.judge.cuda.runners import Runners


class Process:
    ended = 0

    def end(self) -> str:
        self.ended += 1
        return ""


class Pool:
    def __init__(self, path):
        self.path, self.made = path, []

    def take(self, memory):
        folder = self.path / f"runner-{len(self.made)}"
        (folder / "shared").mkdir(parents=True)
        self.made.append(Process())
        return self.made[-1], folder


def test_the_next_process_finds_the_kernels_and_the_one_before_is_dead(tmp_path):
    kernels = tmp_path / "kernels"
    for name in ("own", "shared"):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "__grp__kernel.json").write_text(json.dumps({"child_paths": {"a.ptx": "elsewhere/a.ptx"}}))
    dying, pool = [], Pool(tmp_path)
    runners = Runners(pool, 0.5, dying)
    runners.adopt(kernels)
    first, before = runners.process, runners.folder
    assert runners.change() is runners.process is pool.made[1] is not first
    assert dying == [first] and (first.ended, runners.process.ended) == (1, 0) and not before.exists()
    index = json.loads((runners.folder / "own" / "__grp__kernel.json").read_text())
    assert index == {"child_paths": {"a.ptx": str(runners.folder / "own" / "a.ptx")}}
    assert not list((runners.folder / "shared").iterdir()), "what all runners share was replaced"
    runners.end()
    assert dying == pool.made and [process.ended for process in pool.made] == [1, 1]
