# SPDX-License-Identifier: Apache-2.0
"""The tool prefetch_lines: what the prefetch did in each of some results files, a line each.

Decides which figures are shown and how; what they mean is decided by the program that measured
them.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from .command_line import Refusal, run

TOOL = "prefetch_lines"
HEADINGS = (
    "depth",
    "exposed s",
    "overlapped s",
    "issued ahead",
    "begun ahead",
    "verdict",
    "tokens/s",
    "step time",
    "file",
)


@dataclass(frozen=True)
class Prefetch:
    """The figures of one direction of one run."""

    path: Path
    direction: str
    depth: int
    exposed_s: float
    overlapped_s: float
    issued_ahead: float
    begun_ahead: float
    verdict: str
    tokens_per_second: float
    tokens: int
    link_rate: float


def read(path: Path) -> list[Prefetch]:
    """The figures of a results file, one entry per direction."""
    if not path.is_file():
        raise Refusal(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        with h5py.File(path) as file:
            if not file.attrs.get("complete", 0):
                raise Refusal(f"{path} is no complete results file")
            group, phases = file["/timing/prefetch"], file["/timing/phases"].attrs
            columns = {name: column[()] for name, column in group.items()}
            return [
                Prefetch(
                    path,
                    columns["direction"][row].decode(),
                    int(columns["requested"][row]),
                    float(columns["exposed_s"][row]),
                    float(columns["overlapped_s"][row]),
                    float(columns["issued_ahead"][row]),
                    float(columns["begun_ahead"][row]),
                    columns["verdict"][row].decode(),
                    float(phases["tokens_per_second"]),
                    int(file["/timing/ranks/tokens"][()].sum()),
                    float(phases.get("link_rate_emulated", 0)),
                )
                for row in range(len(columns["direction"]))
            ]
    except OSError as error:
        raise Refusal(f"{path} cannot be read as HDF5: {error}") from None
    except KeyError as error:
        raise Refusal(f"{path} is no results file with a timeline: {error}") from None


def cells(entry: Prefetch, first: Prefetch) -> list[str]:
    """One line of the table; the step's time is told as a share of the first file's."""
    same_work = entry.tokens == first.tokens
    share = first.tokens_per_second / entry.tokens_per_second
    return [
        str(entry.depth),
        f"{entry.exposed_s:.3f}",
        f"{entry.overlapped_s:.3f}",
        f"{entry.issued_ahead:g}",
        f"{entry.begun_ahead:g}",
        entry.verdict,
        f"{entry.tokens_per_second:.1f}",
        f"{share:.3f} x" if same_work else "other tokens",
        str(entry.path),
    ]


def table(entries: Sequence[Prefetch]) -> list[str]:
    """The entries as aligned lines under a heading."""
    rows = [list(HEADINGS)] + [cells(entry, entries[0]) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return [
        "  ".join(
            cell.rjust(width) if column < 8 else cell
            for column, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]


def prefetch_lines(options: argparse.Namespace) -> None:
    """Reads all files, then prints the table and what must be known to read it."""
    entries = [entry for path in options.files for entry in read(path)]
    print("\n".join(table(entries)))
    print(
        "exposed: compute idle while its gather ran or waited. Step time: against the first line."
    )
    rates = {entry.link_rate for entry in entries if entry.link_rate > 0}
    for rate in sorted(rates):
        print(f"The link was EMULATED at {rate * 8e-9:g} Gb/s; these are not this machine's times.")


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Prints what the prefetch did in each of some results files, a line each.",
        epilog="Exit status: 0 done, 2 refused.",
    )
    parser.add_argument("files", metavar="RESULTS.h5", type=Path, nargs="+")
    options = parser.parse_args(argv)
    return run(TOOL, lambda: prefetch_lines(options))
