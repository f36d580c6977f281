# SPDX-License-Identifier: Apache-2.0
"""Draws spans as rows of bars: ranks as groups, streams as rows, an arrow from each gather to the
compute that used it, exposed waits hatched.

Decides where everything stands; which spans are shown and what the heading says is decided before.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerPatch
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from . import timeline_style as style
from .chrome_trace import stream_order
from .spans import Span, flows, overlap_ns

# All in inches, as the axis of rows is.
BAR = 0.34
BETWEEN_ROWS = 0.30
RANK_LINE = 0.26
PASS_LINE = 0.19
BETWEEN_RANKS = 0.22
LEFT, RIGHT = 0.85, 0.25
HEADING_LINE = 0.23
FOOT = 1.0
# In points: the names in the bars.
LABEL = 7.0


@dataclass(frozen=True)
class Picture:
    """What is drawn: spans, lines of the heading (the first is the title), and what is said of an
    emulated link, empty if there was none.
    """

    spans: list[Span]
    heading: list[str]
    emulation: str


class _Canvas:
    """The axes, and where a time and a rank's stream are on them."""

    def __init__(self, picture: Picture):
        spans = picture.spans
        self.ranks = sorted({span.rank for span in spans})
        self.streams = stream_order(spans)
        self.begin = min(span.begin for span in spans)
        self.end = max(max(span.end for span in spans), self.begin + 1)
        self.unit, self.unit_ns = style.time_unit(self.end - self.begin, least=2)
        computes = sum(s.kind == "compute" and s.rank == self.ranks[0] for s in spans)
        self.width = min(max(11.0, 2.0 + 0.36 * computes), 26.0)
        self.short_names = self._crowded(spans)
        rows = len(self.streams)
        self.group = RANK_LINE + PASS_LINE + rows * BAR + (rows - 1) * BETWEEN_ROWS + BETWEEN_RANKS
        self.lines = _wrapped(picture, self.width - 2 * RIGHT)
        self.head = 0.2 + HEADING_LINE * len(self.lines)
        self.height = self.head + self.group * len(self.ranks) + FOOT
        self.figure = Figure(figsize=(self.width, self.height))
        FigureCanvasAgg(self.figure)
        self.axes = self._make_axes()

    def _crowded(self, spans: Sequence[Span]) -> bool:
        """Whether most bars are too narrow for the full names of units: then none has them."""
        bars = [span for span in spans if span.kind != "wait"]
        fit = [
            style.text_points(span.unit, LABEL) + 4 <= self.points(span.end - span.begin)
            for span in bars
        ]
        return 2 * sum(fit) < len(bars)

    def _make_axes(self) -> Axes:
        """Axes whose rows are measured in inches from the top."""
        inside = self.group * len(self.ranks)
        axes = self.figure.add_axes(
            (
                LEFT / self.width,
                FOOT / self.height,
                1 - (LEFT + RIGHT) / self.width,
                inside / self.height,
            )
        )
        axes.set_xlim(0, (self.end - self.begin) / self.unit_ns)
        axes.set_ylim(inside, 0)
        return axes

    def x(self, nanoseconds: int) -> float:
        """A time on the axis."""
        return (nanoseconds - self.begin) / self.unit_ns

    def points(self, nanoseconds: float) -> float:
        """A duration as points on the page."""
        return nanoseconds / (self.end - self.begin) * (self.width - LEFT - RIGHT) * 72

    def top(self, rank: int) -> float:
        """Where a rank's group begins."""
        return self.ranks.index(rank) * self.group

    def row(self, span: Span) -> float:
        """The upper edge of the row in which a span is drawn."""
        place = self.streams.index(span.stream)
        return self.top(span.rank) + RANK_LINE + PASS_LINE + place * (BAR + BETWEEN_ROWS)


def _wrapped(picture: Picture, width: float) -> list[tuple[str, dict]]:
    """The lines of the heading with their looks, cut where the page ends."""
    title = {"fontsize": 12, "fontweight": "bold", "color": style.INK}
    plain = {"fontsize": 9.5, "color": style.INK}
    alarm = {"fontsize": 9.5, "fontweight": "bold", "color": style.HEAD}
    lines = [(text, plain if number else title) for number, text in enumerate(picture.heading)]
    if picture.emulation:
        lines.append((picture.emulation, alarm))
    found = []
    for text, looks in lines:
        letters = int(width * 72 / (looks["fontsize"] * 0.62))
        found += [(part, looks) for part in textwrap.wrap(text, letters) or [""]]
    return found


def _bars(canvas: _Canvas, spans: Sequence[Span]) -> None:
    """Gathers in light colours, computes in full ones, waits hatched."""
    for span in spans:
        left, top, width = canvas.x(span.begin), canvas.row(span), span.end - span.begin
        colour = style.unit_colour(span.unit)
        look = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.4}
        if span.kind == "gather":
            look = {"facecolor": style.tint(colour, 0.6), "edgecolor": colour, "linewidth": 0.8}
        if span.kind == "wait":
            look = {"facecolor": "white", "edgecolor": style.HATCH, "linewidth": 0.3}
            look["hatch"] = "/////"
        bar = Rectangle((left, top), width / canvas.unit_ns, BAR, **look)
        bar.set_gid(f"rank{span.rank}-pass{span.pass_}-{span.kind}-{span.unit}-{span.sequence}")
        canvas.axes.add_patch(bar)
        _label(canvas, span, top, look["facecolor"])


def _label(canvas: _Canvas, span: Span, top: float, colour) -> None:
    """The unit's name in its bar, or the length of a wait, if there is room for it."""
    waits = span.kind == "wait"
    width = canvas.points(span.end - span.begin)
    texts = [span.unit, style.short_name(span.unit)][canvas.short_names :]
    if waits:
        length = style.duration(span.end - span.begin)
        texts = [f"exposed {length}", length]
    fitting = style.label_that_fits(texts, LABEL, width - (6 if waits else 0), BAR * 72)
    if fitting is None or (waits and fitting[1]):
        return
    canvas.axes.text(
        canvas.x((span.begin + span.end) // 2),
        top + BAR / 2,
        fitting[0],
        rotation=fitting[1],
        fontsize=LABEL,
        color=style.ink_on(colour),
        ha="center",
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2} if waits else None,
    )


def _arrow(begin: tuple[float, float], end: tuple[float, float]) -> FancyArrowPatch:
    """From a gather to the compute that used it."""
    return FancyArrowPatch(
        begin,
        end,
        arrowstyle="-|>",
        mutation_scale=6,
        linewidth=0.7,
        color=style.INK,
        shrinkA=0,
        shrinkB=0,
        zorder=4,
    )


def _arrows(canvas: _Canvas, spans: Sequence[Span]) -> None:
    """One for each compute whose gather is shown."""
    for gather, compute in flows(spans):
        begin = (canvas.x(gather.end), canvas.row(gather) + BAR)
        end = (canvas.x(compute.begin), canvas.row(compute))
        arrow = _arrow(begin, end)
        arrow.set_gid(
            f"rank{gather.rank}-pass{compute.pass_}-flow-{gather.unit}-{compute.sequence}"
        )
        canvas.axes.add_patch(arrow)


def _rank_lines(canvas: _Canvas, spans: Sequence[Span]) -> None:
    """Above each group its rank, and what share of the time shown was exposed."""
    for rank in canvas.ranks:
        mine = [span for span in spans if span.rank == rank]
        begin, end = min(s.begin for s in mine), max(s.end for s in mine)
        exposed = overlap_ns(mine, "wait", begin, end)
        shown = end - begin
        said = f"exposed {style.duration(exposed)} of the {style.duration(shown)} shown"
        if not any(span.kind == "gather" for span in mine):
            said = "weights are read in place, nothing is gathered"
        elif shown:
            said += f" ({100 * exposed / shown:.0f} %)"
        y = canvas.top(rank) + RANK_LINE / 2
        looks = {"va": "center", "fontsize": 9, "color": style.INK}
        left = -(LEFT - 0.12) / (canvas.width - LEFT - RIGHT)
        transform = canvas.axes.get_yaxis_transform()
        name = f"rank {rank}"
        canvas.axes.text(left, y, name, transform=transform, fontweight="bold", **looks)
        canvas.axes.text(0, y, said, transform=transform, **looks)
        if rank != canvas.ranks[0]:
            canvas.axes.axhline(canvas.top(rank), color="#CCCCCC", linewidth=0.8)
        _pass_lines(canvas, mine)


def _pass_lines(canvas: _Canvas, mine: Sequence[Span]) -> None:
    """Where each pass (and each direction of it) begins to compute, with its number."""
    starts: dict[tuple[int, str], int] = {}
    for span in sorted((s for s in mine if s.stream == "compute"), key=lambda s: s.begin):
        starts.setdefault((span.pass_, span.direction), span.begin)
    several = len({direction for _, direction in starts}) > 1
    ends = [*list(starts.values())[1:], canvas.end]
    top = canvas.top(mine[0].rank) + RANK_LINE
    for ((number, direction), begin), end in zip(starts.items(), ends):
        x = canvas.x(begin)
        bottom = canvas.top(mine[0].rank) + canvas.group - BETWEEN_RANKS
        canvas.axes.plot(
            [x, x], [top, bottom], color="#888888", linewidth=0.8, linestyle=":", zorder=0
        )
        texts = [f"pass {number}" + (f", {direction}" if several else ""), str(number)]
        fitting = style.label_that_fits(texts, 7.5, canvas.points(end - begin), PASS_LINE * 72)
        if fitting and not fitting[1]:
            canvas.axes.annotate(
                fitting[0],
                (x, top + PASS_LINE / 2),
                xytext=(2, 0),
                textcoords="offset points",
                fontsize=7.5,
                va="center",
                color="#555555",
            )


def _axis(canvas: _Canvas) -> None:
    """Names of the streams, and the time."""
    axes = canvas.axes
    ticks, names = [], []
    for rank in canvas.ranks:
        for place, stream in enumerate(canvas.streams):
            first = canvas.top(rank) + RANK_LINE + PASS_LINE
            ticks.append(first + place * (BAR + BETWEEN_ROWS) + BAR / 2)
            names.append(stream)
    axes.set_yticks(ticks, names, fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=int(canvas.width), steps=[1, 2, 5, 10]))
    since = style.duration(canvas.begin) if canvas.begin > 0 else ""
    after = f" (0 is {since} after the first span that was kept)" if since else ""
    axes.set_xlabel(f"time in {canvas.unit}{after}", fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


class _ArrowInLegend(HandlerPatch):
    """An arrow as an entry of the legend."""

    def create_artists(self, legend, handle, xd, yd, width, height, fontsize, trans):
        """Called by the library, with the entry's box."""
        arrow = _arrow((0, height), (width, 0))
        arrow.set_transform(trans)
        return [arrow]


def _legend(canvas: _Canvas, spans: Sequence[Span]) -> None:
    """What colours, hatches and arrows mean, as far as they occur."""
    names = {span.unit.partition(".")[0] for span in spans}
    also = "" if "head" in names else "; the tied head too"
    entries: list[tuple[Patch, str]] = [
        (Patch(facecolor=colour), what)
        for name, colour, what in (
            ("embedding", style.EMBEDDING, f"embedding (E0, E1, ...{also})"),
            ("layer", style.LAYERS[0], "layer (L0, L1, ...; colours take turns)"),
            ("head", style.HEAD, "head (H0, H1, ...)"),
        )
        if name in names
    ]
    if any(span.kind == "gather" for span in spans):
        light = style.tint(style.LAYERS[0], 0.6)
        look = {"facecolor": light, "edgecolor": style.LAYERS[0]}
        entries.append((Patch(**look), "the same, gathered"))
        arrow = _arrow((0, 0), (1, 1))
        entries.append((arrow, "gather to the compute that used it"))
    if any(span.kind == "wait" for span in spans):
        look = {"facecolor": "white", "edgecolor": style.HATCH, "hatch": "/////"}
        entries.append((Patch(**look), "exposed: compute idle while its gather ran or waited"))
    entries.append((Patch(facecolor="white", edgecolor="#CCCCCC"), "blank: idle, not for a gather"))
    canvas.figure.legend(
        [patch for patch, _ in entries],
        [text for _, text in entries],
        handler_map={FancyArrowPatch: _ArrowInLegend()},
        loc="lower left",
        bbox_to_anchor=(LEFT / canvas.width, 0.04 / canvas.height),
        ncols=6 if canvas.width > 16 else 3,
        fontsize=8,
        frameon=False,
        borderaxespad=0,
    )


def draw(picture: Picture, file: BinaryIO, kind: str) -> None:
    """Writes the picture as `png` or `svg`."""
    with matplotlib.rc_context(style.RC):
        canvas = _Canvas(picture)
        _bars(canvas, picture.spans)
        _arrows(canvas, picture.spans)
        _rank_lines(canvas, picture.spans)
        _axis(canvas)
        _legend(canvas, picture.spans)
        for number, (text, looks) in enumerate(canvas.lines):
            y = 1 - (0.12 + HEADING_LINE * (number + 0.5)) / canvas.height
            canvas.figure.text(RIGHT / canvas.width, y, text, va="center", **looks)
        facts = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        canvas.figure.savefig(file, format=kind, dpi=150, metadata=facts)
