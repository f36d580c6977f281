# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one node on this machine: munged, slurmctld and slurmd with files, keys and ports of
their own, so that nothing of the system's is touched.

Decides how the daemons are started and ended, and how a job is submitted and waited for; needs
root and Debian's packages slurm-wlm and munge.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "scancel")
SLURM = """\
ClusterName=foregather
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
ReturnToService=2
KillWait=5
JobRequeue=1
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} Sockets=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE OverSubscribe=FORCE:4 State=UP
"""
# Those of a job around the tests would be taken for this cluster's.
NOT_OURS = ("SLURM_", "SBATCH_", "PMI", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_")


class CannotRun(Exception):
    """This machine or user cannot have a Slurm of its own."""


def require() -> None:
    """CannotRun, with the reason, where a cluster cannot be started."""
    if os.geteuid() != 0:
        raise CannotRun("a Slurm of one's own is started as root")
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise CannotRun(f"not found: {', '.join(missing)} (packages slurm-wlm and munge)")


def until(condition: Callable[[], object], seconds: float, what: str) -> object:
    """Waits for a condition and gives what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Job:
    """What scontrol knows of a job."""

    number: int
    state: str
    exit_code: int
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether it has ended, or was cancelled."""
        return self.state not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED")


class Cluster:
    """with Cluster(folder) as cluster: number = cluster.submit("jobs/score.sbatch", ...)."""

    def __init__(self, folder: Path):
        require()
        self.folder = Path(folder)
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(NOT_OURS)
        } | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> "Cluster":
        for name in ("state", "spool", "log", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        ports = [free_port(), free_port()]
        (self.folder / "slurm.conf").write_text(
            SLURM.format(
                host=socket.gethostname().split(".")[0],
                folder=self.folder,
                ports=ports,
                cores=os.cpu_count(),
            )
        )
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\nConstrainCores=no\n")
        try:
            munge = {
                name: f"--{name}={self.folder}/munge/{file}"
                for name, file in (
                    ("socket", "socket"),
                    ("key-file", "key"),
                    ("pid-file", "pid"),
                    ("log-file", "log"),
                    ("seed-file", "seed"),
                )
            }
            self.run("munged", "--force", *munge.values())
            self.run("slurmctld", "-f", self.environment["SLURM_CONF"])
            self.run("slurmd", "-f", self.environment["SLURM_CONF"])
            until(lambda: self.run("sinfo", "-h", "-o", "%t").strip() == "idle", 30, "an idle node")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *command: object, env: dict[str, str] | None = None) -> str:
        """What a command of Slurm prints; it must succeed."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def submit(self, *words: object, env: dict[str, str] | None = None) -> int:
        """sbatch with these words; the job's number."""
        return int(self.run("sbatch", "--parsable", *words, env=env))

    def job(self, number: int) -> Job:
        """The job as it is now."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        facts = dict(re.findall(r"(\S+?)=(\S*)", text))
        return Job(number, facts["JobState"], int(facts["ExitCode"].split(":")[0]), facts)

    def wait(self, number: int, seconds: float) -> Job:
        """The job when it is over."""
        until(lambda: self.job(number).over, seconds, f"the end of job {number}")
        return self.job(number)

    def daemons(self) -> list[int]:
        """Those that were started and live, by what they wrote to their files."""
        files = [self.folder / name for name in ("slurmd.pid", "slurmctld.pid", "munge/pid")]
        numbers = [int(file.read_text()) for file in files if file.exists()]
        return [number for number in numbers if Path(f"/proc/{number}").exists()]

    def stop(self) -> None:
        """Ends all jobs and daemons; nothing of them is left."""
        if len(self.daemons()) == 3:
            self.run("scancel", "--user=root")
            until(lambda: not self.run("squeue", "-h").strip(), 30, "the end of all jobs")
        ours = self.daemons()
        for number in ours:
            os.kill(number, signal.SIGTERM)
        until(lambda: not self.daemons(), 20, "the end of the daemons")
