# SPDX-License-Identifier: Apache-2.0
"""The tool scaling: what a plan says of numbers of ranks, as a picture.

Decides which rows are one line, and what is said of each; how it is drawn is decided in
scaling_picture.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .command_line import Refusal, run
from .part_file import check_output, new_file
from .results_file import text
from .scaling_picture import COLOURS, Line, draw

TOOL = "scaling"
COLUMNS = (
    "ranks",
    "shard",
    "tokens",
    "depth",
    "step",
    "exposed_share",
    "tokens_per_s_rank",
    "fits",
    "basis",
)


@dataclass(frozen=True)
class Plan:
    """The rows of a plan and what it is of."""

    title: str
    machine: str
    emulation: str  # of the link that its times were measured on, if it was emulated
    columns: dict[str, np.ndarray]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Draws step time, exposed share and tokens/s per rank of a plan over its "
        "numbers of ranks: a line for each depth, number of tokens and way to shard. Rows that do "
        "not fit in memory are hollow.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. Outputs "
        "appear under their names only when they are whole.",
    )
    add = parser.add_argument
    add("plan", metavar="FILE.h5", type=Path, help="the results file of a plan")
    add("--png", metavar="FILE", type=Path, help="the picture as pixels")
    add("--svg", metavar="FILE", type=Path, help="the picture as lines and text")
    add("--title", default="", help="a line above (default: the plan's title)")
    add("--replace", action="store_true", help="replace the outputs if they exist")
    return parser


def read_plan(path: Path) -> Plan:
    """Opens a results file. A Refusal says what is wrong with it."""
    if not path.is_file():
        raise Refusal(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        with h5py.File(path) as file:
            rows = file.get("plan/rows")
            absent = [name for name in COLUMNS if rows is None or name not in rows]
            if absent:
                raise Refusal(f"{path} has no /plan/rows/{absent[0]}: it is not of a plan")
            columns = {name: rows[name][()] for name in COLUMNS}
            rate = float(rows.attrs.get("link_rate_bytes_per_s", 0))
            emulation = f"measured on a link EMULATED at {rate * 8e-9:.3g} Gb/s" if rate else ""
            title, machine = text(file.attrs["title"]), text(rows.attrs["machine"])
            return Plan(title, machine, emulation, columns)
    except (OSError, KeyError) as error:
        raise Refusal(f"{path} cannot be read as a results file: {error}") from error


def lines_of(plan: Plan) -> list[Line]:
    """Rows of the same depth, tokens and sharding, in the order of ranks."""
    c = plan.columns
    # A shard as large as the job is one way to shard, whatever its size.
    way = np.where(c["shard"] == c["ranks"], 0, c["shard"])
    keys = sorted(set(zip(c["tokens"].tolist(), way.tolist(), c["depth"].tolist())))
    several = [len({key[i] for key in keys}) > 1 for i in range(3)]
    found = []
    for number, (tokens, shard, depth) in enumerate(keys):
        rows = np.flatnonzero((c["tokens"] == tokens) & (way == shard) & (c["depth"] == depth))
        rows = rows[np.argsort(c["ranks"][rows], kind="stable")]
        words = [f"{tokens} tokens", f"shard {shard or 'all'}", f"depth {depth}"]
        name = ", ".join(word for word, told in zip(words, several) if told) or words[2]
        found.append(
            Line(
                name,
                COLOURS[number % len(COLOURS)],
                c["ranks"][rows],
                c["step"][rows],
                c["exposed_share"][rows],
                c["tokens_per_s_rank"][rows],
                np.array([text(c["fits"][row]) != "no" for row in rows]),
            )
        )
    return found


def told(line: Line) -> str:
    """A line in one line."""
    last = line.per_rank[-1] / line.per_rank[0]
    return (
        f"{line.name}: {line.ranks[0]} to {line.ranks[-1]} ranks, step {line.step[0]:.4g} to "
        f"{line.step[-1]:.4g} s, exposed {line.exposed[0]:.1%} to {line.exposed[-1]:.1%}, "
        f"tokens/s per rank {line.per_rank[0]:.1f} to {line.per_rank[-1]:.1f} ({last:.3f})"
    )


def scaling(options: argparse.Namespace) -> None:
    """Reads, draws, writes."""
    outputs = {kind: path for kind in ("png", "svg") if (path := getattr(options, kind))}
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        raise Refusal("two outputs have the same name")
    for path in outputs.values():
        check_output(path, options.replace)
        if path.exists() and options.plan.exists() and path.samefile(options.plan):
            raise Refusal(f"{path} is the plan's own file: give another name")
    plan = read_plan(options.plan)
    lines = lines_of(plan)
    basis = sorted({text(basis) for basis in plan.columns["basis"]})
    below = "; ".join(filter(None, (plan.machine, f"times: {', '.join(basis)}", plan.emulation)))
    for kind, path in outputs.items():
        with new_file(path, options.replace) as file:
            draw(lines, options.title or plan.title, below, file, kind)
    for words in filter(None, (plan.emulation, *map(told, lines))):
        print(words)


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if not (options.png or options.svg):
        parser.error("name at least one output: --png or --svg")
    return run(TOOL, lambda: scaling(options))
