# SPDX-License-Identifier: Apache-2.0
"""install_deps installs what is missing and nothing else, or says what is missing and what to run.

Decides which machines it meets: folders with only some programs on the PATH, and scripts in place
of those that would install.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

WORDS = (
    "awk bash cat cut dirname env grep ldconfig mktemp readlink rm sed sha256sum sort stat tail tee tr "
    "make git g++ as ld cc1plus mpicxx mpirun pkg-config h5dump h5ls h5diff"
).split()


class Machine:
    """A project in a folder, and a PATH on which only some programs are."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / "bin"
        self.log = folder / "log"
        (folder / "tools").mkdir()
        self.path.mkdir()
        for name in ("install_deps", "requirements.txt"):
            shutil.copy(ROOT / "tools" / name, folder / "tools" / name)
        for word in WORDS:
            found = shutil.which(word, path=os.environ["PATH"] + ":/sbin:/usr/sbin")
            if found:
                (self.path / word).symlink_to(found)
        python = folder / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        digest = hashlib.sha256((folder / "tools" / "requirements.txt").read_bytes()).hexdigest()
        stamp = f"{digest} {python.resolve()}\n"
        (folder / "venv" / "foregather.stamp").write_text(stamp)

    def program(self, name: str, text: str, folder: Path | None = None) -> Path:
        """A shell script on the PATH (or in `folder`), which logs its name and words first."""
        file = (folder or self.path) / name
        file.unlink(missing_ok=True)  # it may be a link to the machine's own program
        file.write_text(f'#!/bin/bash\necho {name} "$@" >> {self.log}\n{text}\n')
        file.chmod(0o755)
        return file

    def use_python(self, text: str) -> None:
        """Puts a script in place of the environment's Python, where nothing is installed yet."""
        python = self.program("python", text, self.folder / "venv" / "bin")
        for name in ("pyvenv.cfg", "bin/pip"):
            (self.folder / "venv" / name).touch()
        (self.folder / "venv" / "foregather.stamp").write_text(f"none {python}\n")
        self.program("id", "echo 1000")

    def deps(self, python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.folder / "tools" / "install_deps", python, "venv"],
            env={"PATH": str(self.path)} | environment,
            capture_output=True,
            text=True,
        )

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_deps_is_silent_where_all_is_there(machine):
    machine.program("apt-get", "exit 1")
    done = machine.deps()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.logged() == []


def test_deps_tells_a_plain_user_one_line_to_run(machine):
    machine.program("apt-get", "exit 1")
    machine.program("id", "echo 1000")
    machine.program("sudo", "exit 1")
    (machine.path / "h5ls").unlink()
    done = machine.deps()
    assert done.returncode == 2
    assert "  - h5dump, h5ls and h5diff" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == "sudo make deps"
    assert not any(line.startswith("apt-get") for line in machine.logged())


def test_deps_lists_what_is_missing_where_there_is_no_apt_get(machine):
    (machine.path / "pkg-config").unlink()
    done = machine.deps()
    assert done.returncode == 2
    assert "  - pkg-config" in done.stderr.splitlines()
    assert "no apt-get" in done.stderr.splitlines()[-1]


def test_deps_installs_the_packages_of_what_is_missing_and_no_others(machine):
    h5ls = (machine.path / "h5ls").readlink()
    (machine.path / "h5ls").unlink()
    install = f'case " $* " in *" install "*) /bin/ln -s {h5ls} {machine.path}/h5ls ;; esac'
    machine.program("apt-get", install)
    machine.program("id", "echo 0")
    done = machine.deps()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "deps: installing Debian packages: hdf5-tools\n"
    (command,) = [line for line in machine.logged() if " install " in line]
    assert command.endswith("--no-install-recommends hdf5-tools")


def test_deps_installs_valgrind_where_it_is_missing_and_asked_for(machine):
    valgrind = machine.program("valgrind", "")
    stored = valgrind.rename(machine.folder / "valgrind")
    install = f'case " $* " in *" install "*) /bin/ln -s {stored} {valgrind} ;; esac'
    machine.program("apt-get", install)
    machine.program("id", "echo 0")
    assert (machine.deps().stderr, machine.logged()) == ("", [])
    done = machine.deps(ALSO="valgrind")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "deps: installing Debian packages: valgrind\n"
    (command,) = [line for line in machine.logged() if " install " in line]
    assert command.endswith("--no-install-recommends valgrind")
    assert machine.deps(ALSO="valgrind").stderr == ""


@pytest.mark.parametrize("target, also", [("check-valgrind", "valgrind"), ("check-slurm", "slurm")])
@pytest.mark.parametrize("user", [0, 1000])
def test_make_asks_for_the_programs_of_a_check_as_root_alone(machine, target, also, user):
    shutil.copy(ROOT / "Makefile", machine.folder)
    (machine.folder / "tests").symlink_to(ROOT / "tests")  # its rules.mk are included
    machine.program("id", f"echo {user}")
    machine.program("install_deps", "echo ALSO=$ALSO; exit 3", machine.folder / "tools")
    done = subprocess.run(
        ["make", "-C", machine.folder, "CUDA=0", target],
        env={"PATH": f"{machine.path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "install_deps" in "".join(machine.logged())
    assert f"ALSO={'' if user else also}\n" in done.stdout


@pytest.mark.parametrize(
    "install, said", [("exit 0", "still this is not found"), ("exit 1", "could not")]
)
def test_deps_fails_when_the_installation_did_not_help(machine, install, said):
    machine.program("apt-get", install)
    machine.program("id", "echo 0")
    done = machine.deps(HDF5_MODULE="no-such-module")
    assert done.returncode == 1
    assert said in done.stderr


def test_deps_finds_missing_headers_where_there_is_no_compiler(machine):
    for word in ("g++", "mpicxx"):
        (machine.path / word).unlink()
    done = machine.deps()
    assert done.returncode == 2
    for words in ("the header mpi.h", "the header nlohmann/json.hpp", "GoogleTest"):
        assert f"  - {words}" in done.stderr.splitlines()


def test_deps_installs_again_when_the_list_changed(machine):
    with (machine.folder / "tools" / "requirements.txt").open("a") as file:
        file.write("one-more==1\n")
    machine.use_python("")
    done = machine.deps()
    assert done.returncode == 0
    (command,) = [line for line in machine.logged() if line.startswith("python")]
    assert " -m pip install " in command and command.endswith(" -r tools/requirements.txt")
    assert machine.deps().stderr == ""


def test_deps_tries_pip_three_times_and_tells_its_last_words(machine):
    machine.use_python("echo no such host; exit 1")
    machine.program("sleep", "")
    done = machine.deps()
    assert done.returncode == 1
    assert "no such host" in done.stderr and "pip could not install" in done.stderr
    assert sum(" -m pip install " in line for line in machine.logged()) == 3


def test_deps_begins_an_unfinished_environment_again(machine):
    machine.use_python("")
    (machine.folder / "venv" / "bin" / "pip").unlink()
    python = machine.program("python3", "")
    assert machine.deps(python=python).returncode == 0
    assert "python3 -m venv --clear venv" in machine.logged()
