"""The last thing that a job's batch script does: where it ended badly, have it started again, or say why not.

Slurm itself requeues a job only when a node fails or a higher job preempts it, and submitit when its signal is answered
in time. What is left is done here, from a trap in the batch script: a crash, a process that was killed, a time limit
that came before the signal was answered. The run then goes on from its last checkpoint.

A run that crashes LIMIT times in a row without a new checkpoint in between, or twice with the same one-line error (exit
code 2: something is wrong with what was asked for), is not started again; failed.json in its job's folder says why.
After two such crashes on the same nodes it is sent to others, where the partition has them.

    python -m drkernel.slurm.guard EXIT_CODE FOLDER        FOLDER: where submitit's folders of the sweep are
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from drkernel.slurm.queue import FAILED, RUN

LIMIT = 3
"""This many crashes in a row without a new checkpoint are too many."""
ASKED_WRONGLY = 2
EXIT_REQUEUE = 75
"""Exit code of ranks that saved because of SIGTERM and ask to be requeued."""
STOPPED = "stopped by a signal"
"""Printed by a run that saved because of a signal. It says more than the exit code: where srun ends the other ranks
meanwhile, their signal hides that code."""
SAVED = f"{STOPPED} at step"
"""What train.py prints then, before the step's number."""
CONTROLLER_TIMEOUT_S = 900.0
"""How long to retry while the Slurm controller does not answer."""


@dataclass(frozen=True)
class Crash:
    """One bad end. progress: what the run had achieved by then, in any form that changes when it achieves more."""

    time: float
    code: int
    progress: str
    reason: str
    nodes: str = ""


def main(code: int, submitted: Path) -> None:
    state = scontrol("show", "job", "-o", job_name(os.environ))
    if superseded(state) or not ended_badly(code, state):
        return
    folder = submitted / job_name(os.environ)
    run_dir = Path(json.loads((folder / RUN).read_text())["run_dir"])
    log = log_of(folder)
    code = first_code(code, log)
    if code == EXIT_REQUEUE or STOPPED in log:
        return requeue("saved at a signal to end")
    nodes = os.environ.get("SLURM_JOB_NODELIST", "")
    why = reason(code, state, log) or f"exit code {code}, see {folder}"
    crash = Crash(time.time(), code, progress(run_dir), why, nodes)
    with open(folder / "crashes.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(crash)) + "\n")
    crashes = [Crash(**json.loads(line)) for line in (folder / "crashes.jsonl").read_text().splitlines()]
    verdict = final(crashes)
    if verdict is None:
        return requeue(crash.reason, avoid=suspects(crashes))
    (folder / FAILED).write_text(json.dumps({"reason": verdict, "job": folder.name, "logs": str(folder)}) + "\n")
    print(f"guard: not started again: {verdict}", flush=True)


def superseded(state: str) -> bool:
    """Whether this is an earlier start, on a node that the controller has given up, and the job runs elsewhere."""
    restarts = re.search(r"Restarts=(\d+)", state)
    return restarts is not None and int(restarts[1]) > int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def ended_badly(code: int, state: str) -> bool:
    """Whether this end is nobody else's: not a success, a cancellation, or a requeue that is already under way.

    state: `scontrol show job -o`. When a limit or scancel ends the batch script, its exit code says nothing.

    >>> ended_badly(1, "JobState=RUNNING Reason=None"), ended_badly(0, "JobState=COMPLETING Reason=TimeLimit")
    (True, True)
    >>> ended_badly(0, "JobState=RUNNING Reason=None"), ended_badly(143, "JobState=COMPLETING Reason=None")
    (False, False)
    """
    fields = dict(re.findall(r"(JobState|Reason)=(\S+)", state))
    return (code != 0 and fields.get("JobState") == "RUNNING") or fields.get("Reason") == "TimeLimit"


def first_code(code: int, log: str) -> int:
    """The code of the rank that ended first. srun returns the highest, which is that of a rank that was ended for it.

    >>> first_code(143, "srun: error: n1: task 0: Exited with exit code 2\\nsrun: error: n1: task 1: Terminated")
    2
    >>> first_code(137, "srun: error: n1: task 1: Killed\\nsrun: error: n1: task 0: Exited with exit code 1")
    137
    """
    ends = re.findall(r"srun: error: \S+ tasks? \S+ (.*)", log)
    own = re.match(r"Exited with exit code (\d+)", ends[0]) if ends else None
    return int(own[1]) if own else code


def final(crashes: list[Crash]) -> str | None:
    """Why there is no point in another start, or None."""
    last = crashes[-1]
    twice = [(crash.reason, crash.progress) for crash in crashes[-2:]] == [(last.reason, last.progress)] * 2
    if last.code == ASKED_WRONGLY and twice:
        return last.reason
    if len(crashes) >= LIMIT and len({crash.progress for crash in crashes[-LIMIT:]}) == 1:
        return f"{LIMIT} crashes in a row without a new checkpoint ({last.progress}); the last one: {last.reason}"
    return None


def suspects(crashes: list[Crash]) -> str:
    """The nodes of the last two crashes, where they are the same and nothing was achieved on them."""
    last = {(crash.nodes, crash.progress) for crash in crashes[-2:]}
    return crashes[-1].nodes if len(crashes) > 1 and len(last) == 1 else ""


def progress(run_dir: Path) -> str:
    """The newest checkpoint of a training run, the number of results of an evaluation, in all shards together."""
    steps = sorted(path.parent.name for path in run_dir.glob("checkpoints/step_*/COMPLETE"))
    results = [*run_dir.glob("results.jsonl"), *run_dir.glob("shards/*/results.jsonl")]
    lines = f", {sum(len(path.read_bytes().splitlines()) for path in results)} results" if results else ""
    return (steps[-1] if steps else "no checkpoint") + lines


def log_of(folder: Path) -> str:
    """What the ranks and srun printed since they were last started."""
    return "\n".join(starts(path.read_text(errors="replace"))[-1] for path in sorted(folder.glob("*_log.out")))


def starts(log: str) -> list[str]:
    """What each start of a rank printed, without the line that says why it was restarted: that is about an earlier one.

    >>> starts("Starting with A\\nKilled\\nStarting with A\\nrestart 1: Killed\\nstep 3\\n")
    [' A\\nKilled\\n', ' A\\nstep 3\\n']
    """
    head, *each = re.sub(r"(?m)^restart \d+: .*\n", "", log).split("Starting with")
    return each or [head]


def reason(code: int, state: str, log: str) -> str:
    """One line, or nothing where nobody said why."""
    if "Reason=TimeLimit" in state:
        return "the time limit came before a step ended; ask for more time, or a longer signal_delay_s"
    lines = [line.strip() for line in log.splitlines()]
    patterns = [r".*(oom.kill|Out Of Memory)"]
    # Where a process was killed, what the others say about lost connections comes of that.
    errors = [r"error: ", r"(\[rank\d+\]: )?(\w+\.)*\w*(Error|Exception)(:|$)"]
    patterns += [r"srun: error: .*task"] if code > 128 else errors
    for pattern in patterns:
        if found := [line for line in lines if re.match(pattern, line)]:
            return found[0 if code > 128 else -1][:400]
    return f"killed by signal {code - 128}" if code > 128 else ""


def restart_reason(log: str) -> str:
    """Why this start was needed, from the log of rank 0, which ends with the head of this start.

    >>> restart_reason("Starting with A\\nstopped by a signal at step 2; the same command goes on\\nStarting with A")
    'stopped by a signal at step 2'
    >>> restart_reason("Starting with A\\nguard: started again: srun: error: n1: task 1: Killed\\nStarting with A")
    'srun: error: n1: task 1: Killed'
    >>> restart_reason("Starting with A\\nCaught signal SIGUSR2 on n1: this job is preempted.\\nStarting with A")
    'stopped by a signal: SIGUSR2 on n1: this job is preempted.'
    >>> restart_reason("Starting with A\\nStarting with A")
    'requeued by Slurm without a signal, as after a node failure'
    """
    previous = ["", *starts(log)][-2]
    if found := re.findall(r"guard: started again: (.*)", previous):
        return found[-1]
    if found := re.findall(rf"{STOPPED}[^;\n]*", previous):
        return found[-1]
    if found := re.findall(r"Caught signal (.*)", previous):
        return f"{STOPPED}: {found[-1]}"
    return "requeued by Slurm without a signal, as after a node failure"


def requeue(why: str, avoid: str = "") -> None:
    """avoid: nodes to leave out from now on, where the partition has enough others."""
    job, needed = job_name(os.environ), int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    scontrol("requeue", job)
    print(f"guard: started again: {why}", flush=True)
    if avoid and nodes_of_partition() >= 2 * needed:
        done = subprocess.run(["scontrol", "update", f"JobId={job}", f"ExcNodeList={avoid}"], capture_output=True)
        print(f"guard: {'not again' if done.returncode == 0 else 'could not be kept away from'} on {avoid}", flush=True)


def nodes_of_partition() -> int:
    found = re.search(r"TotalNodes=(\d+)", scontrol("show", "partition", os.environ.get("SLURM_JOB_PARTITION", "")))
    return int(found[1]) if found else 0


def scontrol(*arguments: str) -> str:
    """Ask the controller; where it is away, until it answers. Raises RuntimeError with what it says at last."""
    deadline = time.monotonic() + CONTROLLER_TIMEOUT_S
    while True:
        done = subprocess.run(["scontrol", *arguments], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        if time.monotonic() > deadline:
            raise RuntimeError(f"scontrol {' '.join(arguments)}: {done.stderr.strip()}")
        time.sleep(3)


def job_name(environment: os._Environ[str] | dict[str, str]) -> str:
    """As submitit names a job's folder. Not SLURM_JOB_ID: that of an array's last task is the whole array's.

    >>> job_name({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "9"})
    '7_2'
    """
    array = environment.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{environment['SLURM_ARRAY_TASK_ID']}" if array else environment["SLURM_JOB_ID"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a requeue ends the batch script, too
    main(int(sys.argv[1]), Path(sys.argv[2]))
