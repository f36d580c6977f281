# SPDX-License-Identifier: Apache-2.0
"""An output file that appears under its name only when it is whole.

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
def new_hdf5_file(output: Path, replace: bool) -> Iterator[h5py.File]:
    """Gives an empty HDF5 file OUTPUT.part (format bounds v110); on leaving it is synced and
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
            # Our own lock covers the part, and HDF5's would collide with it.
            with h5py.File(part, "w", libver=("v110", "v110"), locking=False) as file:
                yield file
            os.fsync(descriptor)
            check_output(output, replace)
            os.rename(part, output)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync_folder(output.parent)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Makes the rename last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
