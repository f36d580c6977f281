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
from .timeline_canvas import Panel, Picture
from .timeline_picture import draw
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
        "from results files of runs with output.timeline = true; several are drawn one above the "
        "other on one scale of time, as runs at depths 0 and 1.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. Outputs "
        "appear under their names only when they are whole.",
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.h5", type=Path, nargs="+", help="the results files")
    add("--png", metavar="FILE", type=Path, help="the picture as pixels")
    add("--svg", metavar="FILE", type=Path, help="the picture as lines and text")
    add(
        "--trace",
        metavar="FILE",
        type=Path,
        help="a trace (JSON) of one run to zoom in, for ui.perfetto.dev or chrome://tracing",
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
        f"{RANKS} in a picture, fewer of each where there are several runs)",
    )
    add("--replace", action="store_true", help="replace the outputs if they exist")
    return parser


@dataclass(frozen=True)
class Run:
    """What is told of the run as a whole. `depths`: by what it is told from others."""

    title: str
    depths: str
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
    depths = [f"{entry.direction} depth {entry.depth}" for entry in prefetches(file)]
    speed = attribute(file, "timing/phases", "tokens_per_second")
    if speed:
        parts.append(f"{digits(speed)} tokens/s")
    hosts = columns(file.get("provenance/hosts"))
    return Run(
        title=text(file.attrs.get("title", b"")),
        depths=", ".join(depths) if len(depths) > 1 else "".join(depths).removeprefix("forward "),
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


@dataclass(frozen=True)
class Chosen:
    """A results file with what of it is asked for."""

    path: Path
    about: Run
    spans: SpanTable
    kept: list[int]

    def shown(self, options: argparse.Namespace) -> list[int]:
        """The passes of a picture."""
        return self.kept if options.passes else legible(self.spans, self.kept)

    def ranks(self, options: argparse.Namespace, most: int) -> list[int]:
        """The ranks that are asked for, or the first."""
        return options.ranks or self.about.ranks[: max(most, 1)]


def read_chosen(path: Path, options: argparse.Namespace) -> Chosen:
    """Reads a file; refused if it lacks what is asked for."""
    with open_results(path) as file:
        spans = read_spans(path, file)
        about = read_run(file, spans)
    kept = pass_range(path, spans.passes, options.passes)
    absent = sorted(set(options.ranks or ()) - set(about.ranks))
    if absent:
        raise Refusal(
            f"--ranks: {path} has no spans of rank {numbers(absent)}, only of "
            f"{numbers(about.ranks)}"
        )
    return Chosen(path, about, spans, kept)


def panel_of(run: Chosen, options: argparse.Namespace, runs: int) -> Panel:
    """A run as it is drawn, with a title if there are several."""
    shown, ranks = run.shown(options), run.ranks(options, RANKS // runs)
    spans = run.spans.select(ranks, shown)
    if not spans:
        raise Refusal(f"{run.path} has no spans of these ranks in these passes")
    if runs == 1:
        return Panel(spans)
    computes = [span.begin for span in spans if span.stream == "compute"]
    length = max(span.end for span in spans) - min(computes or [span.begin for span in spans])
    title = f"{run.about.depths or run.path.name}: {duration(length)} for {counted('pass', shown)}"
    facts = filter(None, (run.about.facts, run.about.emulation, str(run.path)))
    return Panel(spans, title, " · ".join(facts))


def picture_of(runs: list[Chosen], options: argparse.Namespace) -> tuple[Picture, str]:
    """What is drawn, and what is said of it on the terminal."""
    panels = [panel_of(run, options, len(runs)) for run in runs]
    first = runs[0]
    shown, ranks = first.shown(options), first.ranks(options, RANKS // len(runs))
    if len(ranks) * len(runs) > MOST_RANKS:
        raise Refusal(
            f"a picture of {len(ranks) * len(runs)} ranks is too high, at most {MOST_RANKS}: "
            "--ranks"
        )
    said = f"{counted('pass', shown)}, {counted('rank', ranks)}"
    if len(runs) > 1:
        titles = list(dict.fromkeys(run.about.title for run in runs if run.about.title))
        caption = "under each name: the whole run, means over ranks; a red line ends what is shown of it"
        heading = [" / ".join(titles) or f"{len(runs)} runs", caption]
        return Picture(panels, heading, ""), f"{len(runs)} runs, {said}"
    caption = (
        f"shown: {counted('pass', shown)} of {first.about.passes or max(first.kept) + 1}, counted "
        f"from 0; {counted('rank', ranks)} of {len(first.about.ranks)}. Figures above: the whole "
        "run, means over ranks."
    )
    heading = [first.about.title, first.about.facts, caption]
    return Picture(panels, list(filter(None, heading)), first.about.emulation), said


def write_pictures(runs: list[Chosen], options: argparse.Namespace) -> None:
    """Draws and writes the PNG and SVG that are asked for."""
    picture, said = picture_of(runs, options)
    outputs = {kind: path for kind in ("png", "svg") if (path := getattr(options, kind))}
    for kind, path in outputs.items():
        with new_file(path, options.replace) as file:
            draw(picture, file, kind)
        print(f"{path}: {said}")


def write_one_trace(run: Chosen, options: argparse.Namespace) -> None:
    """Writes the trace that is asked for."""
    ranks = run.ranks(options, TRACE_RANKS)
    chosen = run.spans.select(ranks, run.kept)
    told = {"title": run.about.title, "run": run.about.facts, "link": run.about.emulation}
    with new_file(options.trace, options.replace) as file:
        write_trace(file, chosen, run.about.hosts, {key: v for key, v in told.items() if v})
    print(f"{options.trace}: {counted('pass', run.kept)}, {counted('rank', ranks)}")


def timeline(options: argparse.Namespace) -> None:
    """Reads, chooses, writes."""
    outputs = [path for path in (options.png, options.svg, options.trace) if path]
    for path in outputs:
        check_output(path, options.replace)
        if path.exists() and any(path.samefile(one) for one in options.results if one.exists()):
            raise Refusal(f"{path} is the results file itself: give another name")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise Refusal("two outputs have the same name")
    if options.trace and len(options.results) > 1:
        raise Refusal("--trace is of one run: give one results file")
    runs = [read_chosen(path, options) for path in options.results]
    if options.trace:
        write_one_trace(runs[0], options)
    if options.png or options.svg:
        write_pictures(runs, options)


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if not (options.png or options.svg or options.trace):
        parser.error("name at least one output: --png, --svg or --trace")
    return run(TOOL, lambda: timeline(options))
