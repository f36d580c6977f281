# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces joined by a rate-limited link, each with a hostname.

Decides how they are made, entered and taken away. Namespaces have no names and live as long as a
holder process, which ends when this process does, however it ends: two runs cannot clash, and
nothing is left behind. What runs on the hosts is others' business.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

ADDRESSES = ("10.77.0.1", "10.77.0.2")
NETWORK = "10.77.0.0/24"
INTERFACE = "link0"
TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv", "hostname")
# The shell waits for the end of its input, a pipe that this process alone keeps open.
HOLD = 'hostname "$1" && echo held && read -r _'
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class CannotLink(Exception):
    """This machine, or this user, cannot make such hosts; the text says why."""


def bits_per_second(rate: str) -> float:
    """Of a rate as tc writes it: 200mbit, 1gbit. ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", rate)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{rate!r} is no rate; write it as tc does, for example 200mbit or 1gbit")
    return float(match[1]) * UNITS[match[2]]


def default_burst(rate: str) -> int:
    """Bytes that may pass at once: 2 ms of the rate, at least two of the largest packets."""
    return max(2 << 16, int(bits_per_second(rate) / 8 * 2e-3))


def told(command: list[str]) -> None:
    """Runs a command of the system; CannotLink with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
        raise CannotLink(f"`{' '.join(command)}` failed: {said}")


class TwoHosts:
    """with TwoHosts("1gbit") as hosts: subprocess.run([*hosts.enter(0), "hostname"])."""

    def __init__(self, rate: str, burst: int | None = None):
        """rate: of each direction, as tc writes it; burst: bytes that may pass at once."""
        bits_per_second(rate)
        self.rate, self.burst = rate, burst or default_burst(rate)
        self.names = [f"host{side}-{os.getpid()}" for side in "ab"]
        self.holders: list[subprocess.Popen] = []

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise CannotLink("network namespaces need root")
        for tool in TOOLS:
            if shutil.which(tool) is None:
                raise CannotLink(f"{tool} is not installed (Debian: iproute2, util-linux)")
        try:
            for name in self.names:
                self.holders.append(self.hold(name))
            self.join()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def hold(name: str) -> subprocess.Popen:
        """Starts the process whose namespaces are a host."""
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", HOLD, "sh", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # A ^C is for the program; this ends with our end of the pipe.
        )
        if holder.stdout.readline() != "held\n":
            said = holder.communicate()[1].strip()
            raise CannotLink(f"no namespaces of its own for {name}: {said}")
        return holder

    def join(self) -> None:
        """Joins the hosts and limits both directions."""
        one, other = (str(holder.pid) for holder in self.holders)
        link = ["ip", "link", "add", INTERFACE, "netns", one, "type", "veth"]
        told([*link, "peer", "name", INTERFACE, "netns", other])
        for host, address in enumerate(ADDRESSES):
            inside = self.enter(host)
            told([*inside, "ip", "addr", "add", f"{address}/24", "dev", INTERFACE])
            told([*inside, "ip", "link", "set", "lo", "up"])
            told([*inside, "ip", "link", "set", INTERFACE, "up"])
            shape = ["tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf"]
            limits = ["rate", self.rate, "burst", str(self.burst), "limit", str(8 << 20)]
            told([*inside, *shape, *limits])

    def enter(self, host: int) -> list[str]:
        """The words before a command that runs it on a host; it gets SIGTERM when we are gone."""
        entered = ["nsenter", "--target", str(self.holders[host].pid), "--net", "--uts"]
        return ["setpriv", "--pdeathsig", "TERM", *entered]

    def processes(self) -> list[int]:
        """All that run on the hosts, the holders aside."""
        own = [os.stat(f"/proc/{holder.pid}/ns/net").st_ino for holder in self.holders]
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "ns/net").stat().st_ino in own:
                    found.append(int(entry.name))
            except OSError:  # It ended meanwhile.
                continue
        return [pid for pid in found if pid not in [holder.pid for holder in self.holders]]

    def close(self) -> None:
        """Ends what still runs on the hosts, then the hosts."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + 3
            left = self.processes() if len(self.holders) == 2 else []
            for pid in left:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            while left and time.monotonic() < end:
                time.sleep(0.02)
                left = self.processes()
        for holder in self.holders:
            holder.communicate()  # Closes its input, which ends it.
        self.holders = []
        for name in self.names:  # What a killed launcher could not remove.
            for left in Path(tempfile.gettempdir()).glob(f"ompi.{name}.*"):
                shutil.rmtree(left, ignore_errors=True)
            for left in Path("/dev/shm").glob(f"*.{name}.*"):
                left.unlink(missing_ok=True)
