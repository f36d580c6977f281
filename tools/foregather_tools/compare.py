# SPDX-License-Identifier: Apache-2.0
"""The tool compare: what changed between two results files, and whether it is within limits.

Decides what is compared and how it is shown; how a limit is judged is decided in compare_limits.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py

from .array_changes import ArrayChange, compare_attributes, compare_groups, shape_text
from .command_line import Failure, Refusal, listed, run
from .compare_bench import DEPTHS, bench_faults, bench_figures
from .compare_gate import GATE, SLACK, gate_text, gated, verdict_faults
from .compare_limits import (
    Figure,
    array_faults,
    increase_faults,
    loss_faults,
    resumed_notes,
    score_faults,
    side_by_side,
)
from .results_file import columns, deck, open_results, prefetches

TOOL = "compare"
GROUPS = ("score", "train", "train/items", "evaluation")


def limit(text: str) -> float:
    """A limit on the command line: a number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no limit: a number, 0 or more")
    return value


def add_increases(parser: argparse.ArgumentParser) -> None:
    """The limits on what may grow."""
    add = parser.add_argument
    add(
        "--max-exposed-increase",
        metavar="PERCENT",
        type=limit,
        help="by how much the exposed time may grow, beside --slack-seconds",
    )
    add(
        "--max-time-increase",
        metavar="PERCENT",
        type=limit,
        help="by how much the time of all steps together may grow, beside --slack-seconds",
    )
    add(
        "--max-step-increase",
        metavar="PERCENT",
        type=limit,
        help="by how much the time of one step may grow (the median where the file has it, else "
        "the mean), beside the share of --slack-seconds that falls on a step",
    )
    add(
        "--max-memory-increase",
        metavar="PERCENT",
        type=limit,
        help="by how much the memory of the largest rank may grow, beside --slack-mib",
    )
    add(
        "--slack-seconds",
        metavar="S",
        type=limit,
        help="a growth of times up to this, over the whole run, is noise (default: "
        f"{SLACK:g}; with --gate {GATE['slack_seconds']:g})",
    )
    add(
        "--slack-mib",
        metavar="MIB",
        type=limit,
        default=16.0,
        help="a growth of memory up to this is noise (default: %(default)s)",
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Tells what changed between two results files: scores or steps of training, "
        "exposed time, step time, memory, verdict, deck; of benches the rows of the same transport, "
        "tokens and depth, a step judged by the interval that the bench stores beside it. Without options the arrays of /score, "
        "/train and /evaluation must have the same shapes, the same documents, and numbers at the "
        "same places, and each loss must be a number; their values and all times are free. Plans, "
        "which hold predictions alone, are refused.",
        epilog="Exit status: 0 done and within the limits, 1 past a limit (each is named on "
        "stderr), 2 a file cannot be read or compared.",
    )
    parser.add_argument("a", metavar="A.h5", type=Path, help="the results before")
    parser.add_argument("b", metavar="B.h5", type=Path, help="the results after")
    add = parser.add_argument
    add(
        "--gate",
        action="store_true",
        help="a gate against regressions: each limit that is not given becomes "
        f"{gate_text()}; what neither file has is told and not judged; a verdict may not become "
        "`not observed`",
    )
    add("--same-score", action="store_true", help="/score must have the same bytes")
    add("--max-logprob-difference", metavar="NAT", type=limit, help="of any token")
    add("--max-loss-difference", metavar="NAT", type=limit, help="of the mean, or of any step")
    add("--max-greedy-flips", metavar="TOKENS", type=limit, help="tokens whose /greedy differs")
    add_increases(parser)
    add("--json", action="store_true", help="print one JSON object in place of the tables")
    return parser


@dataclass(frozen=True)
class Comparison:
    """All that is told of two files."""

    a: str
    b: str
    arrays: list[ArrayChange]
    attributes: list[str]
    figures: list[Figure]
    words: dict[str, tuple[str, str]]
    notes: list[str]
    past_limits: list[str]


def words_that_differ(a: h5py.File, b: h5py.File) -> dict[str, tuple[str, str]]:
    """Verdicts, deck keys, versions and inputs that are not the same: name -> A's, B's."""

    def words(file: h5py.File) -> dict[str, str]:
        found = {f"verdict, {entry.direction}": entry.verdict for entry in prefetches(file)}
        found |= deck(file)
        for table, name, value in (("versions", "name", "version"), ("choices", "name", "value")):
            entries = columns(file.get(f"provenance/{table}"))
            pairs = zip(entries.get(name, ()), entries.get(value, ()))
            found |= {f"{table}: {key}": str(value) for key, value in pairs}
        inputs = columns(file.get("provenance/inputs")).get("sha256", ())
        names = ("weights", "tokens", "config")
        return found | {f"content of {name}": str(sha) for name, sha in zip(names, inputs)}

    one, two = words(a), words(b)
    return {
        name: (one.get(name, "-"), two.get(name, "-"))
        for name in dict.fromkeys([*one, *two])
        if name.startswith("verdict") or one.get(name) != two.get(name)
    }


def compare_files(options: argparse.Namespace) -> Comparison:
    """Reads both files and judges them."""
    with open_results(options.a) as a, open_results(options.b) as b:
        groups = [name for name in GROUPS if name in a or name in b]
        bench = [DEPTHS in file for file in (a, b)]
        for path, file in ((options.a, a), (options.b, b)):
            if "plan" in file:
                raise Refusal(f"{path} is of a plan, which ran nothing: plans are not compared")
        if not groups and not all(bench):
            raise Refusal(f"{options.a} and {options.b} do not hold /score, /train or /bench")
        arrays = [change for name in groups for change in compare_groups(a.get(name), b.get(name))]
        attributes = compare_attributes(a.get("score"), b.get("score"))
        figures, words = side_by_side(a, b), words_that_differ(a, b)
        figures += bench_figures(a, b)
        past, notes = [*array_faults(arrays), *loss_faults(a, b)], resumed_notes(a, b)
        resumed = list(notes)
        if options.gate:
            options, not_judged = gated(options, arrays, figures)
            notes += not_judged
            past += verdict_faults(a, b)
        if options.slack_seconds is None:
            options.slack_seconds = SLACK
        if all(bench):
            past += bench_faults(a, b, options)
            judged_above = {"max_exposed_increase": None, "max_step_increase": None}
            options = argparse.Namespace(**vars(options) | judged_above)
    past += score_faults(arrays, figures, options)
    if options.same_score:
        score = [change for change in arrays if change.name.startswith("/score/")]
        past += [f"--same-score: {c.name} has other bytes" for c in score if not c.same_bytes]
        past += [f"--same-score: the attribute {name} differs" for name in attributes]
    past += increase_faults(figures, resumed, options)
    paths = str(options.a), str(options.b)
    return Comparison(*paths, arrays, attributes, figures, words, notes, past)


def table(rows: list[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Aligned lines; the columns in `left` are aligned to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def array_row(change: ArrayChange) -> tuple[str, ...]:
    """One line of the table of arrays."""
    shape = shape_text(change.shapes[0] or change.shapes[1])
    if change.fault:
        return change.name, shape, "", "", change.fault
    largest = "" if change.largest is None else f"{change.largest:.3g}"
    said = "same bytes" if change.same_bytes else ""
    if change.at:
        said = f"at {', '.join(map(str, change.at))}"
    if change.unmatched:
        said += f"; {change.unmatched} in one file only"
    return change.name, shape, str(change.differ), largest, said.removeprefix("; ")


def number(value: float | None) -> str:
    """A figure with the digits that matter."""
    if value is None:
        return "-"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.7g}"


def figure_row(figure: Figure) -> tuple[str, ...]:
    """One line of the table of figures."""
    name = f"{figure.name}, {figure.unit}" if figure.unit else figure.name
    change = figure.change
    if change is None or math.isnan(change):
        return name, number(figure.a), number(figure.b), "", ""
    share = f"{100 * change / figure.a:+.1f} %" if figure.a and change else ""
    return name, number(figure.a), number(figure.b), f"{change:+.4g}" if change else "same", share


def shorten(text: str) -> str:
    """A value of at most 60 characters, for the table."""
    return text if len(text) <= 60 else text[:57] + "..."


def tables(comparison: Comparison) -> list[str]:
    """Everything for people."""
    lines = [f"A  {comparison.a}", f"B  {comparison.b}", *comparison.notes, ""]
    rows = [("array", "shape", "differ", "max |difference|", "")]
    lines += table(rows + [array_row(change) for change in comparison.arrays], left=(0, 4)) + [""]
    figures = [figure_row(figure) for figure in comparison.figures]
    lines += table([("figure", "A", "B", "B - A", ""), *figures], left=(0,)) + [""]
    words = [
        (name, shorten(a) or "(empty)", shorten(b) or "(empty)")
        for name, (a, b) in comparison.words.items()
    ]
    return lines + table([("verdict, and what is not the same", "A", "B"), *words], left=(0, 1, 2))


def as_json(comparison: Comparison) -> str:
    """Everything for programs; what is no finite number is null."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    facts = asdict(comparison) | {"within_limits": not comparison.past_limits}
    for entry in facts["figures"]:
        del entry["limit"]
    return json.dumps(plain(facts), indent=2, allow_nan=False)


def compare(options: argparse.Namespace) -> None:
    """Reads, shows, and fails if a limit is passed."""
    comparison = compare_files(options)
    print(as_json(comparison) if options.json else "\n".join(tables(comparison)), flush=True)
    past = comparison.past_limits
    if past:
        raise Failure(listed(f"past {len(past)} limit{'s' if len(past) > 1 else ''}:", past))


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    options = arguments().parse_args(argv)
    return run(TOOL, lambda: compare(options))
