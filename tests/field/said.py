# SPDX-License-Identifier: Apache-2.0
"""Reads what the program prints: its messages among the launcher's, its keys, a refusal.

Decides what counts as the program's own line; each test decides which lines it expects.
"""

import re
import subprocess
from pathlib import Path

from run_foregather import PROGRAM, Result

# What Open MPI's mpirun adds to stderr when a rank ends with another status than 0.
LAUNCHER = re.compile(
    r"-{20,}|Primary job  terminated normally|a non-zero exit code\. Per user-direction"
    r"|mpirun (detected|noticed) that|the job to be terminated\. The first process"
    r"|  (Process name|Exit code): |MPI_ABORT was invoked|with errorcode |NOTE: invoking MPI_ABORT"
    r"|You may or may not see output|exactly when Open MPI kills them|\[[^\]]+:\d+\] |mca_\w+: "
)


def lines(stderr: str) -> list[str]:
    """The program's own lines of stderr."""
    return [line for line in stderr.splitlines() if line.strip() and not LAUNCHER.match(line)]


def messages(stderr: str) -> list[str]:
    """The program's own messages; indented lines carry on the one before them."""
    found: list[str] = []
    for line in lines(stderr):
        if line.startswith("  ") and found:
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


def refusal(result: Result, *words: str, lines_said: int | None = 1, within: float = 5.0) -> str:
    """The one message of a refusal, after checking that it is one, quick, and left no file.

    Each of `words` stands in it; it has `lines_said` lines, or any number where None.
    """
    said = lines(result.stderr)
    assert result.code == 2, f"exit status {result.code}\n{result.stdout}\n{result.stderr}"
    assert result.stdout == ""
    assert lines_said is None or len(said) == lines_said, said
    assert len(set(said)) == len(said), "told twice"
    message = "\n".join(said)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
    assert result.seconds < within, f"took {result.seconds} s"
    output = Path(result.deck.parent, result.path)
    if output != result.deck.parent:
        assert not output.exists() and not Path(f"{output}.part").exists()
    return message


def bare(*words: str) -> subprocess.CompletedProcess:
    """The program without a launcher, and with an environment that holds nothing at all."""
    return subprocess.run([PROGRAM, *words], env={}, capture_output=True, text=True, timeout=60)


def template_keys(job: str = "score") -> dict[str, str]:
    """Every key of the job and its default, as --template prints them."""
    keys, section = {}, ""
    for line in bare("--template", job).stdout.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = line.split("=", 1)
            keys[f"{section}.{name.strip()}"] = value.strip()
    return keys


def help_keys() -> list[str]:
    """Every key that --help describes."""
    return re.findall(r"^([a-z_]+\.[a-z0-9_]+)$", bare("--help").stdout, re.MULTILINE)


def prefetch(result: Result) -> tuple[int, ...]:
    """Depth in force, least number of uses issued ahead, gathers ahead, gathers."""
    table = result.table("/timing/prefetch")
    return tuple(
        int(table[name][0]) for name in ("depth", "issued_ahead", "gathers_ahead", "gathers")
    )
