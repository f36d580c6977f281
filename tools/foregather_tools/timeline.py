# SPDX-License-Identifier: Apache-2.0
"""The tool timeline: the streams of a run over time, as a picture and as a trace.

Decides what of a results file is shown and what is said beside it; how it is drawn and written is
decided in the modules it calls.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from .chrome_trace import write_trace
from .command_line import Refusal, run
from .part_file import check_output, new_file
from .results_file import attribute, columns, deck, emulated_rate, open_results, prefetches, text
from .spans import SpanTable, numbers, pass_range, read_spans
from .timeline_picture import Picture, draw
from .timeline_style import digits, duration

TOOL = "timeline"
# More than these are not legible in a picture: computes of a rank, and ranks.
COMPUTES = 64
RANKS = 4
# What an image of 150 dots per inch can hold.
MOST_RANKS = 128
# A trace of more ranks is slow to load.
TRACE_RANKS = 16


def passes(words: str) -> str:
    """A range on the command line, kept as written."""
    if not re.fullmatch(r"\d+|\d+:\d*|:\d+", words):
        raise argparse.ArgumentTypeError(
            f"'{words}' is no range: FIRST:LAST, FIRST:, :LAST or PASS"
        )
    first, _, last = words.partition(":")
    if first and last and int(last) < int(first):
        raise argparse.ArgumentTypeError(f"'{words}' is reversed: give {last}:{first}")
    return words


def rank_list(words: str) -> list[int]:
    """Ranks on the command line: numbers and ranges, with commas; each counts once."""
    found: list[int] = []
    for word in words.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", word)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise argparse.ArgumentTypeError(f"'{words}' is no list of ranks, as 0,2 or 0-3")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(found))


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Draws the streams of a run over time: what each rank gathered and computed "
        "when, which gather a compute waited for, and for how long it was exposed. The spans come "
        "from a results file of a run with output.timeline = true.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. Outputs "
        "appear under their names only when they are whole.",
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.h5", type=Path, help="the results file")
    add("--png", metavar="FILE", type=Path, help="the picture as pixels")
    add("--svg", metavar="FILE", type=Path, help="the picture as lines and text")
    add(
        "--trace",
        metavar="FILE",
        type=Path,
        help="a trace (JSON) to zoom in, for ui.perfetto.dev or chrome://tracing",
    )
    add(
        "--passes",
        metavar="FIRST:LAST",
        type=passes,
        help="passes to show, both included, counted from 0 (default: the trace shows all that "
        f"were kept, the picture the last ones, up to {COMPUTES} computes of a rank)",
    )
    add(
        "--ranks",
        metavar="LIST",
        type=rank_list,
        help=f"ranks to show, as 0,2 or 0-3 (default: the first {TRACE_RANKS} in a trace, "
        f"{RANKS} in a picture)",
    )
    add("--replace", action="store_true", help="replace the outputs if they exist")
    return parser


@dataclass(frozen=True)
class Run:
    """What is told of the run as a whole."""

    title: str
    facts: str
    emulation: str
    ranks: list[int]
    passes: int
    hosts: dict[int, str]


def read_run(file: h5py.File, spans: SpanTable) -> Run:
    """The run's figures, over all of its passes."""
    keys = deck(file)
    rate = emulated_rate(file)
    ranks = len(columns(file.get("timing/ranks")).get("tokens", ())) or 1
    parts = [f"{keys.get('job.name', 'run')} on {ranks} rank{'s' if ranks > 1 else ''}"]
    for entry in prefetches(file):
        parts.append(
            f"{entry.direction}: depth {entry.depth}, verdict {entry.verdict}, exposed "
            f"{duration(1e9 * entry.exposed_s)}, overlapped {duration(1e9 * entry.overlapped_s)}"
        )
    speed = attribute(file, "timing/phases", "tokens_per_second")
    if speed:
        parts.append(f"{digits(speed)} tokens/s")
    hosts = columns(file.get("provenance/hosts"))
    return Run(
        title=text(file.attrs.get("title", b"")),
        facts=" · ".join(parts),
        emulation=(
            f"emulated link: comm.link_rate slowed gathers to {rate * 8e-9:.4g} Gb/s, so their "
            "times are not this machine's"
            if rate
            else ""
        ),
        ranks=spans.ranks,
        passes=int(attribute(file, "timing/phases", "passes") or 0),
        hosts=dict(zip(hosts.get("rank", ()), map(str, hosts.get("host", ())))),
    )


def legible(spans: SpanTable, kept: list[int]) -> list[int]:
    """The last of the kept passes, as many as a picture can show, at least one."""
    of_one = spans.select(spans.ranks[:1], kept)
    count = Counter(span.pass_ for span in of_one if span.kind == "compute")
    chosen: list[int] = []
    total = 0
    for number in reversed(kept):
        total += count[number]
        if chosen and (total > COMPUTES or number != chosen[-1] - 1):
            break
        chosen.append(number)
    return sorted(chosen)


def counted(noun: str, values: Sequence[int]) -> str:
    """The noun with its numbers."""
    plural = {"pass": "passes", "rank": "ranks"}[noun]
    return f"{noun if len(values) == 1 else plural} {numbers(sorted(values))}"


def write_picture(
    options: argparse.Namespace, about: Run, spans: SpanTable, kept: list[int]
) -> None:
    """Draws and writes the PNG and SVG that are asked for."""
    shown = kept if options.passes else legible(spans, kept)
    ranks = options.ranks or about.ranks[:RANKS]
    if len(ranks) > MOST_RANKS:
        raise Refusal(f"a picture of {len(ranks)} ranks is too high, at most {MOST_RANKS}: --ranks")
    caption = (
        f"shown: {counted('pass', shown)} of {about.passes or max(kept) + 1}, counted from 0; "
        f"{counted('rank', ranks)} of {len(about.ranks)}. Figures above: the whole run, means over "
        "ranks."
    )
    heading = [about.title, about.facts, caption]
    picture = Picture(spans.select(ranks, shown), list(filter(None, heading)), about.emulation)
    outputs = {kind: path for kind in ("png", "svg") if (path := getattr(options, kind))}
    for kind, path in outputs.items():
        with new_file(path, options.replace) as file:
            draw(picture, file, kind)
        print(f"{path}: {counted('pass', shown)}, {counted('rank', ranks)}")


def timeline(options: argparse.Namespace) -> None:
    """Reads, chooses, writes."""
    outputs = [path for path in (options.png, options.svg, options.trace) if path]
    for path in outputs:
        check_output(path, options.replace)
        if path.exists() and path.samefile(options.results):
            raise Refusal(f"{path} is the results file itself: give another name")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise Refusal("two outputs have the same name")
    with open_results(options.results) as file:
        spans = read_spans(options.results, file)
        about = read_run(file, spans)
    kept = pass_range(options.results, spans.passes, options.passes)
    absent = sorted(set(options.ranks or ()) - set(about.ranks))
    if absent:
        raise Refusal(
            f"--ranks: {options.results} has no spans of rank {numbers(absent)}, only of "
            f"{numbers(about.ranks)}"
        )
    if options.trace:
        ranks = options.ranks or about.ranks[:TRACE_RANKS]
        chosen = spans.select(ranks, kept)
        told = {"title": about.title, "run": about.facts, "link": about.emulation}
        with new_file(options.trace, options.replace) as file:
            write_trace(file, chosen, about.hosts, {key: v for key, v in told.items() if v})
        print(f"{options.trace}: {counted('pass', kept)}, {counted('rank', ranks)}")
    if options.png or options.svg:
        write_picture(options, about, spans, kept)


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if not (options.png or options.svg or options.trace):
        parser.error("name at least one output: --png, --svg or --trace")
    return run(TOOL, lambda: timeline(options))
