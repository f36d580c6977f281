# SPDX-License-Identifier: Apache-2.0
"""Opens a token file for the tools that read one.

Decides what makes a token file, and that what has a checksum is what was written; what is read of
it is decided by the caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from .checksums import refuse_broken_tokens
from .command_line import Refusal


@contextmanager
def open_tokens(path: Path) -> Iterator[h5py.File]:
    """Opens a token file for as long as the body runs; a Refusal says what is wrong with it."""
    if not path.is_file():
        raise Refusal(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        with h5py.File(path) as file:
            if not all(isinstance(file.get(name), h5py.Dataset) for name in ("tokens", "offsets")):
                raise Refusal(f"{path} is no token file: it lacks /tokens or /offsets")
            refuse_broken_tokens(path, file)
            yield file
    except OSError as error:
        raise Refusal(f"{path} cannot be read as HDF5: {error}") from None
