# SPDX-License-Identifier: Apache-2.0
"""Jobs that are watched and hurt while they run: ranks by number, and faults of the system on one
rank.

Decides how a fault is made (signals, and a library between the program and the C library); each
test decides which rank has it and how the job must end.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from run_foregather import LAUNCH, MPIRUN, PROGRAM, deck_text, start, wait

# FAULT names the fault, FAULT_RANK the rank that has it (any, if not set); FAULT_AT is the number
# of the call that it befalls, from 1, or what errno becomes. FAULT_FILE is a part of the names of
# the unfinished files that are meant (all, if not set), or of the file that somebody cuts off,
# writes to or renames just before it is read for the first time in a large piece. FAULT_WHEN names
# a file from whose being there on the faults in a send or an exchange befall. The fault count-writes only counts
# writes; tear-write dies when it has written half of one.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int have(const char* fault) {
    const char* asked = getenv("FAULT");
    const char* rank = getenv("FAULT_RANK");
    const char* own = getenv("OMPI_COMM_WORLD_RANK");
    return asked && strcmp(asked, fault) == 0 && (!rank || (own && strcmp(rank, own) == 0));
}

/* Whether a descriptor is that of an unfinished file, and one that is meant. */
static int is_part(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 5 || strncmp(path + n - 5, ".part", 5) != 0) return 0;
    path[n] = 0;
    return !getenv("FAULT_FILE") || strstr(path, getenv("FAULT_FILE"));
}

static void* next(const char* name) { return dlsym(RTLD_NEXT, name); }

int flock(int fd, int operation) {
    if (have("no-locks")) {
        errno = atoi(getenv("FAULT_AT"));
        return -1;
    }
    return ((int (*)(int, int))next("flock"))(fd, operation);
}

/* What somebody else does to a file while it is read. */
static void change(int fd, off_t at) {
    static int done = 0;
    char link[64], path[4096], moved[4096];
    if (done) return;
    if (!have("shrink-in-load") && !have("rewrite-in-load") && !have("rename-in-load")) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    if (!strstr(path, getenv("FAULT_FILE"))) return;
    done = 1;
    int failed = 0;
    if (have("shrink-in-load")) failed = truncate(path, at) != 0;
    if (have("rename-in-load")) {
        strcpy(moved, path);
        strcpy(strrchr(moved, '/'), "/moved.h5");
        failed = rename(path, moved) != 0;
    }
    if (have("rewrite-in-load")) {
        int other = open(path, O_WRONLY);
        failed = other < 0 || ((ssize_t(*)(int, const void*, size_t, off_t))dlsym(
                                  RTLD_NEXT, "pwrite"))(other, "changed", 7, at) != 7;
        close(other);
    }
    if (failed) abort();
}

#define READS(NAME, OFFSET)                                                                  \
    ssize_t NAME(int fd, void* to, size_t n, OFFSET at) {                                    \
        if (n >= 65536 && have("stop-in-load")) raise(SIGSTOP);                              \
        if (n >= 65536 && have("die-in-load")) raise(SIGKILL);                               \
        if (n >= 65536) change(fd, at);                                                      \
        return ((ssize_t(*)(int, void*, size_t, OFFSET))next(#NAME))(fd, to, n, at);         \
    }
READS(pread, off_t)
READS(pread64, off64_t)

/* Every write to unfinished files comes by here: -1 where it must fail. */
static int writes = 0;
static int tears(int fd) {
    return have("tear-write") && is_part(fd) && writes == atoi(getenv("FAULT_AT"));
}
static int before_write(int fd) {
    if (!getenv("FAULT") || !is_part(fd)) return 0;
    ++writes;
    if (have("die-in-write") && writes == atoi(getenv("FAULT_AT"))) raise(SIGKILL);
    if (have("slow-in-write") && writes == atoi(getenv("FAULT_AT"))) usleep(2500000);
    if (have("stop-in-write") && writes == atoi(getenv("FAULT_AT"))) raise(SIGSTOP);
    if (!have("disk-full")) return 0;
    errno = ENOSPC;
    return -1;
}
__attribute__((destructor)) static void tell(void) {
    if (have("count-writes")) fprintf(stderr, "writes %d\n", writes);
}

#define WRITES(NAME, FROM, COUNT, OFFSET)                                                   \
    ssize_t NAME(int fd, FROM from, COUNT n, OFFSET at) {                                    \
        if (before_write(fd)) return -1;                                                     \
        if (tears(fd)) {                                                                     \
            ((ssize_t(*)(int, FROM, COUNT, OFFSET))next(#NAME))(fd, from, n / 2, at);        \
            raise(SIGKILL);                                                                  \
        }                                                                                    \
        return ((ssize_t(*)(int, FROM, COUNT, OFFSET))next(#NAME))(fd, from, n, at);         \
    }
WRITES(pwrite, const void*, size_t, off_t)
WRITES(pwrite64, const void*, size_t, off64_t)
WRITES(pwritev, const struct iovec*, int, off_t)
WRITES(pwritev64, const struct iovec*, int, off64_t)

ssize_t write(int fd, const void* from, size_t n) {
    if (before_write(fd)) return -1;
    if (tears(fd)) {
        ((ssize_t(*)(int, const void*, size_t))next("write"))(fd, from, n / 2);
        raise(SIGKILL);
    }
    return ((ssize_t(*)(int, const void*, size_t))next("write"))(fd, from, n);
}

ssize_t writev(int fd, const struct iovec* from, int n) {
    if (before_write(fd)) return -1;
    if (tears(fd)) {
        ((ssize_t(*)(int, const struct iovec*, int))next("writev"))(fd, from, n / 2);
        raise(SIGKILL);
    }
    return ((ssize_t(*)(int, const struct iovec*, int))next("writev"))(fd, from, n);
}

/* Parts of gathers and reductions, which alone have this tag; what MPI's types are is not needed to
   pass them on. */
int MPI_Isend(const void* from, int n, void* type, int to, int tag, void* comm, void* request) {
    const char* when = getenv("FAULT_WHEN");
    if (tag == 0 && when && access(when, F_OK) == 0) {
        if (have("stop-in-send")) raise(SIGSTOP);
        if (have("die-in-send")) raise(SIGKILL);
    }
    return ((int (*)(const void*, int, void*, int, int, void*, void*))next("MPI_Isend"))(
        from, n, type, to, tag, comm, request);
}

/* Exchanges between steps: a rank that never comes to one, and one whose messages are lost. */
int MPI_Iallgather(const void* from, int n, void* type, void* to, int to_n, void* to_type, void* comm,
                   void* request) {
    const char* when = getenv("FAULT_WHEN");
    if (when && access(when, F_OK) == 0) {
        while (have("sleep-in-exchange")) pause();
        if (have("lose-exchange"))
            return ((int (*)(void*, int, void*, int, int, void*, void*))next("MPI_Irecv"))(
                to, to_n, to_type, atoi(getenv("OMPI_COMM_WORLD_RANK")), 999, comm, request);
    }
    return ((int (*)(const void*, int, void*, void*, int, void*, void*, void*))next(
        "MPI_Iallgather"))(from, n, type, to, to_n, to_type, comm, request);
}

int MPI_Finalize(void) {
    if (have("stop-at-the-end")) raise(SIGSTOP);
    return ((int (*)(void))next("MPI_Finalize"))();
}

int fsync(int fd) {
    static int calls = 0;
    if (have("die-in-flush") && is_part(fd) && ++calls == atoi(getenv("FAULT_AT"))) raise(SIGKILL);
    return ((int (*)(int))next("fsync"))(fd);
}
"""


def library(folder: Path) -> Path:
    """Compiles the library of faults."""
    source, built = folder / "faults.c", folder / "faults.so"
    source.write_text(SOURCE)
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "no C compiler was found"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", built, source, "-ldl"]
    subprocess.run([compiler, *options], check=True)
    return built


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition and gives what it gave; AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


def loads_products(pid: int) -> bool:
    """Whether the process has a library of matrix products open."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    return any(name in maps for name in ("libdnnl", "libopenblas", "libblis"))


class Job:
    """A job that runs beside the test: job = Job(folder, deck, ranks); job.kill(1); job.end(15)."""

    def __init__(
        self,
        folder: Path,
        deck: Mapping[str, Any],
        ranks: int,
        env: Mapping[str, str] | None = None,
    ):
        self.path = folder / "results.h5"
        self.part = folder / "results.h5.part"
        deck_path = folder / "job.deck"
        deck_path.write_text(deck_text({"output.file": self.path} | dict(deck)))
        command = [*MPIRUN, *LAUNCH, str(ranks), str(PROGRAM), str(deck_path)]
        self.size = ranks
        self.process = start(command, folder, env)
        self.pids: dict[int, int] = {}
        self.stdout = self.stderr = ""
        self.seconds = 0.0  # From the call of end() to the launcher's end.

    def ranks(self) -> dict[int, int]:
        """The process of each rank that there is now."""
        found = {}
        for pid in descendants(self.process.pid):
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                program = os.readlink(f"/proc/{pid}/exe")
            except OSError:
                continue
            rank = [w.split(b"=")[1] for w in words if w.startswith(b"OMPI_COMM_WORLD_RANK=")]
            if rank and program == str(PROGRAM.resolve()):
                found[int(rank[0])] = pid
        return found

    def all_there(self) -> None:
        """Waits until every rank is a process, and remembers which."""
        until(lambda: len(self.ranks()) == self.size, 20, "all ranks started")
        self.pids = self.ranks()

    def starting(self) -> None:
        """Waits until every rank is past MPI_Init, where the launcher itself may hang on a death:
        product libraries are loaded when the ranks have agreed on one.
        """
        self.all_there()
        until(lambda: all(loads_products(pid) for pid in self.pids.values()), 20, "ranks start up")

    def scored(self) -> None:
        """Waits until the ranks compute and some scores are in the file."""
        self.all_there()
        until(lambda: has_scores(self.part), 20, "first scores written")

    def stepped(self, log: Path, steps: int) -> None:
        """Waits until the ranks have taken so many steps of training, by the job's own log."""
        self.all_there()
        until(
            lambda: log.exists() and log.read_text().count('"event":"step"') >= steps, 20, "steps"
        )

    def send(self, rank: int, number: signal.Signals) -> None:
        """A signal to one rank."""
        os.kill(self.pids[rank], number)

    def end(self, within: float) -> None:
        """Waits for the end of the job. Every process must be gone then."""
        begin = time.monotonic()
        try:
            self.stdout, self.stderr = wait(self.process, within)
            self.seconds = time.monotonic() - begin
            # Killed ranks need a moment; the launcher does not wait for those that were stopped.
            gone = self.pids.values()
            until(lambda: not any(alive(pid) for pid in gone), 5, "every rank is gone")
        finally:
            self.clear()

    def clear(self) -> None:
        """Ends what a failed test left; a stopped process takes no other signal."""
        for pid in self.pids.values():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.terminate()


def has_scores(path: Path) -> bool:
    """Whether a results file, perhaps one that is being written, holds a score."""
    try:
        with h5py.File(path, locking=False) as file:
            return bool(np.isfinite(file["score/logprob"][()]).any())
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    try:
        children = [
            int(word)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for word in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return children + [below for child in children for below in descendants(child)]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
