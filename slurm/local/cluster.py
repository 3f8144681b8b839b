"""A real Slurm on this machine, in a folder of its own: for tests, and to queue a sweep on a workstation.

    python slurm/local/cluster.py up [--nodes 2] [--cpus 4]     prints what to export, then sbatch and srun work
    python slurm/local/cluster.py down                          ends it and its jobs, and leaves nothing

Needs root and Debian's packages slurm-wlm and munge; no systemd, no accounting, nothing under /etc is touched. A node
is a slurmd on a port of its own on this machine. Partitions: `local`, and `urgent`; its jobs preempt those of `local`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = Path("/tmp/drkernel-slurm")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
WAIT_S = 30.0
RESTART_S = 3.0

CONFIG = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000
JobRequeue=1
KillWait=5
MinJobAge=3600
InactiveLimit=0
SlurmdTimeout=10
ReturnToService=2
{nodes}
PartitionName=local Nodes=ALL Default=YES State=UP OverSubscribe=NO PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL State=UP OverSubscribe=NO PriorityTier=2
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} State=UNKNOWN"
)


class Missing(RuntimeError):
    """This machine cannot run it; the message says in one line why."""


class Cluster:
    """One Slurm in `folder`. nodes: names of its slurmd; cpus: what each offers, which may be more than there are."""

    def __init__(self, folder: Path = FOLDER, nodes: int = 2, cpus: int = 4):
        self.folder, self.cpus = folder, cpus
        self.nodes = [f"n{index + 1}" for index in range(nodes)]
        self._requeued: dict[str, float] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in order to talk to this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def up(self) -> None:
        """Start all daemons and wait until every node is idle. Raises Missing, or RuntimeError with a log's tail."""
        check()
        if (self.folder / "slurm.conf").exists():
            raise RuntimeError(f"{self.folder}: a cluster is here already; `down` first")
        for name in ("state", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self._configure()
        try:
            self._start_munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self._until(lambda: self.ask("sinfo", "-h", "-o", "%t", "-N").split() == ["idle"] * 2 * len(self.nodes))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End jobs and daemons, and remove the folder."""
        if self._pid("slurmctld"):
            with contextlib.suppress(Exception):
                self.ask("scancel", "--user", "root", "--full", "--signal", "KILL")
                self.ask("scancel", "--user", "root")
                self._until(lambda: not self.ask("squeue", "-h"), 15)
        for node in self.nodes or []:
            for pid in self._stepd(node):
                _kill(pid, signal.SIGKILL)
        for file in sorted(self.folder.glob("*.pid"), reverse=True):  # slurmd before slurmctld before munged
            self._end(file.stem, signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_controller(self) -> None:
        self._run("slurmctld")
        self._until(lambda: self.ask("scontrol", "ping").split()[-1] == "UP")

    def stop_controller(self) -> None:
        self._end("slurmctld", signal.SIGTERM)

    def start_node(self, node: str) -> None:
        self._run("slurmd", "-N", node)

    def kill_node(self, node: str) -> None:
        """As if the machine had lost its power: slurmd, the steps it supervises and all their processes.

        All of them stop before the first is killed, and children die before their parents, whose death would let a
        stopped child go on. An srun that still saw another's end would have the controller signal its step, again and
        again until the node is back, where the signal then meets the job's next start.
        """
        steps = self._stepd(node)
        processes = [*steps, *(pid for step in steps for pid in _descendants(step))]
        if slurmd := self._pid(f"slurmd.{node}"):
            processes.append(slurmd)
        for pid in processes:
            _kill(pid, signal.SIGSTOP)
        for pid in reversed(processes):
            _kill(pid, signal.SIGKILL)
        self._end(f"slurmd.{node}", signal.SIGKILL)

    def kill_task(self, job: str, rank: int) -> None:
        """SIGKILL to one of the processes that srun started for a job, as the kernel does where memory runs out."""
        wanted = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_PROCID={rank}".encode()}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (process / "environ").read_bytes().split(b"\0")
                if wanted <= set(environment) and b"submitit.core._submit" in (process / "cmdline").read_bytes():
                    return os.kill(int(process.name), signal.SIGKILL)
        raise RuntimeError(f"no rank {rank} of job {job} on this machine")

    def hurry(self) -> None:
        """Let requeued jobs start soon; Slurm keeps them for two minutes. Call it again and again.

        Not at once: slurmd refuses a job in the second in which it was told to end it ("Job credential revoked"), and
        the controller then ends that job for good.
        """
        lines = self.ask("squeue", "-h", "-r", "-t", "PD", "-o", "%i %r").splitlines()
        waiting = [job for job, reason in (line.split(maxsplit=1) for line in lines) if reason == "BeginTime"]
        now = time.monotonic()
        self._requeued = {job: self._requeued.get(job, now) for job in waiting}
        for job, since in self._requeued.items():
            if now - since > RESTART_S:
                with contextlib.suppress(RuntimeError):  # it may just have started
                    self.ask("scontrol", "update", f"JobId={job}", "StartTime=now")

    def ask(self, *command: str) -> str:
        """The output of a Slurm command on this cluster."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()

    def _configure(self) -> None:
        host, memory = socket.gethostname(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        ports = _free_ports(1 + len(self.nodes))
        nodes = [
            NODE.format(name=name, host=host, port=port, cpus=self.cpus, memory=memory * 9 // 10)
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        text = CONFIG.format(folder=self.folder, host=host, ports=ports, nodes="\n".join(nodes))
        (self.folder / "slurm.conf").write_text(text)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files: dict[str, Path | str] = {"key-file": key, "socket": "munge.socket", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munge.seed"}
        self._run("munged", "--force", *(f"--{option}={self.folder / name}" for option, name in files.items()))

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")

    def _until(self, ready: Callable[[], bool], seconds: float = WAIT_S) -> None:
        deadline, last = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            try:
                if ready():
                    return
            except RuntimeError as error:
                last = str(error)
            time.sleep(0.2)
        log = self.folder / "slurmctld.log"
        raise RuntimeError(f"Slurm is not ready: {last}\n{log.read_text()[-1000:] if log.exists() else ''}")

    def _pid(self, name: str) -> int | None:
        file = self.folder / f"{name}.pid"
        return int(file.read_text()) if file.exists() and file.read_text().strip() else None

    def _end(self, name: str, number: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is None:
            return
        _kill(pid, number)
        with contextlib.suppress(RuntimeError):
            self._until(lambda: not _alive(pid), 10)
        _kill(pid, signal.SIGKILL)
        (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def _stepd(self, node: str) -> list[int]:
        """Processes that supervise steps of this node; slurmd names their sockets NODE_JOB.STEP in its spool."""
        spool = self.folder / f"spool.{node}"
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "comm").read_text().strip() != "slurmstepd":
                    continue
                open_files = {os.readlink(fd) for fd in (process / "fd").iterdir()}
                if any(name.startswith((str(spool), str(self.folder / f"slurmd.{node}."))) for name in open_files):
                    found.append(int(process.name))
        return found


def check() -> None:
    """Raises Missing where a cluster cannot be had."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if absent:
        raise Missing(f"no {', '.join(absent)} here; `apt-get install slurm-wlm munge` has them")
    if os.geteuid() != 0:
        raise Missing("a local Slurm needs root, as in a container")


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    """All processes below this one."""
    below: list[int] = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            below += [int(child), *_descendants(int(child))]
    return below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cluster = Cluster(options.folder, options.nodes, options.cpus)
    try:
        if options.what == "down":
            cluster.nodes = [path.name.removeprefix("spool.") for path in options.folder.glob("spool.*")]
            cluster.down()
        else:
            cluster.up()
            print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}")
    except (Missing, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
