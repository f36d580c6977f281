# SPDX-License-Identifier: Apache-2.0
"""An output, file or folder, that appears under its name only when it is whole.

Decides when an output is refused (exists, no room, being written) and how it is put in place; not
its contents.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py

from .command_line import Refusal, human_bytes


def check_output(output: Path, replace: bool) -> None:
    """Refuses an output that exists (unless it may be replaced) or whose folder is not there."""
    if output.is_dir():
        raise Refusal(f"{output} is a folder: name a file to write")
    if output.exists() and not replace:
        raise Refusal(f"{output} exists: give --replace, or another name")
    if not output.parent.is_dir():
        raise Refusal(f"the folder {output.parent} does not exist: make it first")
    if not os.access(output.parent, os.W_OK):
        raise Refusal(f"the folder {output.parent} cannot be written to")


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuses if the file system of `folder` has less than `needed` bytes free for `what`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Refusal(
            f"{what} needs {human_bytes(needed)}, but the file system of {folder} has "
            f"{human_bytes(free)} free"
        )


def _lock(descriptor: int, part: Path) -> None:
    """Takes the part file for this process; a file system without locks is accepted as it is."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refusal(f"{part} is being written by another process") from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise


@contextmanager
def _part_of(output: Path, replace: bool) -> Iterator[tuple[Path, int]]:
    """Gives OUTPUT.part and its descriptor, locked for this process; on leaving it is synced and
    renamed to OUTPUT.

    If the body raises, the part is removed. A killed process leaves OUTPUT.part, which the next run
    overwrites.
    """
    check_output(output, replace)
    part = output.with_name(output.name + ".part")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, part)
        try:
            yield part, descriptor
            os.fsync(descriptor)
            check_output(output, replace)
            os.rename(part, output)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync(output.parent)
    finally:
        os.close(descriptor)


@contextmanager
def new_hdf5_file(output: Path, replace: bool) -> Iterator[h5py.File]:
    """Gives an empty HDF5 file (format bounds v110) that becomes OUTPUT when the body is done."""
    with _part_of(output, replace) as (part, _):
        # Our own lock covers the part, and HDF5's would collide with it.
        with h5py.File(part, "w", libver=("v110", "v110"), locking=False) as file:
            yield file


@contextmanager
def new_file(output: Path, replace: bool) -> Iterator[BinaryIO]:
    """Gives an empty file of bytes that becomes OUTPUT when the body is done."""
    with _part_of(output, replace) as (_, descriptor):
        os.ftruncate(descriptor, 0)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            yield file


def check_folder(output: Path) -> None:
    """Refuses a folder to make that exists (unless it is empty) or that cannot be made."""
    if output.exists() and not output.is_dir():
        raise Refusal(f"{output} exists and is no folder: give another name")
    if output.is_dir() and any(output.iterdir()):
        raise Refusal(f"the folder {output} is not empty: give another name")
    if not output.parent.is_dir():
        raise Refusal(f"the folder {output.parent} does not exist: make it first")
    if not os.access(output.parent, os.W_OK):
        raise Refusal(f"the folder {output.parent} cannot be written to")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Gives an empty folder OUTPUT.part; on leaving its files are synced and it is renamed to
    OUTPUT, which must be absent or an empty folder.

    If the body raises, the part is removed. A killed process leaves OUTPUT.part, which has to be
    removed by hand: what lies in it may be somebody's.
    """
    output = Path(os.path.abspath(output))
    check_folder(output)
    part = output.with_name(output.name + ".part")
    try:
        part.mkdir()
    except FileExistsError:
        raise Refusal(
            f"{part} exists: another process writes it, or one was killed; remove it if so"
        ) from None
    try:
        yield part
        for file in part.iterdir():
            _sync(file)
        _sync(part)
        check_folder(output)
        os.rename(part, output)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _sync(output.parent)


def _sync(path: Path) -> None:
    """Makes what was written to a file, or the names in a folder, last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
