# SPDX-License-Identifier: Apache-2.0
"""How every tool speaks and ends: messages, progress lines and exit statuses.

Decides the wording's frame (tool name first, stderr) and the statuses 0, 1 and 2; not what is
refused.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence


class Refusal(Exception):
    """Refused before any output was written: ends the tool with status 2."""


class Failure(Exception):
    """Failed while running: ends the tool with status 1."""


_stop_signals: list[str] = []


def check_stop() -> None:
    """Ends the work if SIGINT or SIGTERM has come; long loops call it once a turn.

    A KeyboardInterrupt would not do: it is lost if it falls into a library's callback.
    """
    if _stop_signals:
        raise Failure(f"stopped by {_stop_signals[0]}, no output was written")


def _note_signal(number: int, _) -> None:
    """Asks the work to stop; a second signal ends the process at once."""
    _stop_signals.append(signal.Signals(number).name)
    signal.signal(number, signal.SIG_DFL)


def run(tool: str, body: Callable[[], None]) -> int:
    """Calls body and turns what it raises into one message on stderr and an exit status.

    0 done, 1 failed while running, 2 refused before any work. For the time of the call SIGINT and
    SIGTERM are noted and make check_stop() raise.
    """
    _stop_signals.clear()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, _note_signal) for number in numbers]
    try:
        return _status_of(tool, body)
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def _status_of(tool: str, body: Callable[[], None]) -> int:
    """Calls body; gives the exit status, and says why it is not 0."""
    try:
        body()
        return 0
    except Refusal as refusal:
        print(f"{tool}: refused: {refusal}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"{tool}: failed: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{tool}: failed: {error}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{tool}: failed: out of memory", file=sys.stderr)
        return 1


def listed(heading: str, items: Sequence[str]) -> str:
    """One message for all faults of a kind: the heading, then one indented line for each."""
    return heading + "".join(f"\n  {item}" for item in items)


def count(word: str) -> int:
    """A whole number above zero, as the type of an option."""
    value = int(word)
    if value < 1:
        raise ValueError(word)
    return value


def human_bytes(count: float) -> str:
    """A byte count with a binary unit, for messages."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Speaker:
    """Notes and progress lines on stderr, whole lines only, so that a log of a batch job stays
    readable.
    """

    def __init__(self, tool: str, seconds_between: float = 5.0):
        self._tool = tool
        self._between = seconds_between
        self._next = time.monotonic() + seconds_between

    def say(self, text: str) -> None:
        """Prints a note at once."""
        print(f"{self._tool}: {text}", file=sys.stderr, flush=True)

    def progress(self, text: Callable[[], str]) -> None:
        """Prints text() if the last progress line is at least `seconds_between` old."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._between
            self.say(text())


def printable(path: str | os.PathLike) -> str:
    """A path as valid UTF-8, whatever bytes the file system holds."""
    return os.fsencode(path).decode("utf-8", "replace")
