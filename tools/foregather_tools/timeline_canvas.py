# SPDX-License-Identifier: Apache-2.0
"""Where things stand in a timeline's picture: runs one above the other on one scale of time, in each
ranks as groups, streams as rows.

Decides sizes and places; what is drawn there is decided in timeline_picture.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from . import timeline_style as style
from .chrome_trace import stream_order
from .spans import Span

# All in inches, as the axis of rows is.
BAR = 0.34
BETWEEN_ROWS = 0.30
RANK_LINE = 0.26
PASS_LINE = 0.19
BETWEEN_RANKS = 0.22
LEFT, RIGHT = 0.85, 0.25
PANEL_LINES = 0.62
HEADING_LINE = 0.23
FOOT = 1.0
# In points: the names in the bars.
LABEL = 7.0


@dataclass(frozen=True)
class Panel:
    """The spans of a run, and what stands above them where there are several: a bold title, and
    what else is told.
    """

    spans: list[Span]
    title: str = ""
    facts: str = ""


@dataclass(frozen=True)
class Picture:
    """What is drawn: runs one above the other on one scale of time, lines of the heading (the first
    is the title), and what is said of an emulated link, empty if there was none.
    """

    panels: list[Panel]
    heading: list[str]
    emulation: str


class Canvas:
    """The axes, and what the runs on it have in common."""

    def __init__(self, picture: Picture):
        spans = [span for panel in picture.panels for span in panel.spans]
        self.several = len(picture.panels) > 1
        self.streams = stream_order(spans)
        zeros = [self._zero(panel.spans) for panel in picture.panels]
        runs = [(panel.spans, zero) for panel, zero in zip(picture.panels, zeros)]
        self.begin = min(span.begin - zero for spans_, zero in runs for span in spans_)
        latest = max(span.end - zero for spans_, zero in runs for span in spans_)
        self.end = max(latest, self.begin + 1)
        self.unit, self.unit_ns = style.time_unit(self.end - self.begin, least=2)
        self.width = max(self._width(panel.spans) for panel in picture.panels)
        self.short_names = self._crowded(spans)
        rows = len(self.streams)
        self.group = RANK_LINE + PASS_LINE + rows * BAR + (rows - 1) * BETWEEN_ROWS + BETWEEN_RANKS
        self.lines = _wrapped(picture, self.width - 2 * RIGHT)
        self.head = 0.2 + HEADING_LINE * len(self.lines)
        self.panels: list[RunOnCanvas] = []
        self.inside = 0.0
        for panel, zero in zip(picture.panels, zeros):
            self.panels.append(RunOnCanvas(self, panel, zero, self.inside))
            self.inside = self.panels[-1].bottom
        self.height = self.head + self.inside + FOOT
        self.figure = Figure(figsize=(self.width, self.height))
        FigureCanvasAgg(self.figure)
        self.axes = self._make_axes()

    def _zero(self, spans: Sequence[Span]) -> int:
        """Where a run's time begins: where computing comes to the passes shown, if they are to be
        compared with others', since their first gathers may have begun before.
        """
        computes = [span.begin for span in spans if span.stream == "compute"]
        return min(computes if self.several and computes else [span.begin for span in spans])

    @staticmethod
    def _width(spans: Sequence[Span]) -> float:
        """Room for the computes of a rank."""
        first = min(span.rank for span in spans)
        computes = sum(span.kind == "compute" and span.rank == first for span in spans)
        return min(max(11.0, 2.0 + 0.36 * computes), 26.0)

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
        axes = self.figure.add_axes(
            (
                LEFT / self.width,
                FOOT / self.height,
                1 - (LEFT + RIGHT) / self.width,
                self.inside / self.height,
            )
        )
        axes.set_xlim(self.begin / self.unit_ns, self.end / self.unit_ns)
        axes.set_ylim(self.inside, 0)
        return axes

    def points(self, nanoseconds: float) -> float:
        """A duration as points on the page."""
        return nanoseconds / (self.end - self.begin) * (self.width - LEFT - RIGHT) * 72


class RunOnCanvas:
    """One run on the canvas: where a time and a rank's stream are."""

    def __init__(self, canvas: Canvas, panel: Panel, zero: int, top: float):
        self.canvas, self.panel, self.zero = canvas, panel, zero
        self.spans = panel.spans
        self.ranks = sorted({span.rank for span in panel.spans})
        self.end = max(span.end for span in panel.spans)
        self.first = top + (PANEL_LINES if panel.title else 0)
        self.bottom = self.first + canvas.group * len(self.ranks)

    def x(self, nanoseconds: int) -> float:
        """A time on the axis."""
        return (nanoseconds - self.zero) / self.canvas.unit_ns

    def top(self, rank: int) -> float:
        """Where a rank's group begins."""
        return self.first + self.ranks.index(rank) * self.canvas.group

    def row_of(self, rank: int, stream: str) -> float:
        """The upper edge of a rank's stream."""
        place = self.canvas.streams.index(stream)
        return self.top(rank) + RANK_LINE + PASS_LINE + place * (BAR + BETWEEN_ROWS)

    def row(self, span: Span) -> float:
        """The upper edge of the row in which a span is drawn."""
        return self.row_of(span.rank, span.stream)

    def name(self, span: Span, what: str) -> str:
        """Of a mark in the picture, which no other has."""
        run = f"run{self.canvas.panels.index(self)}-" if self.canvas.several else ""
        return f"{run}rank{span.rank}-pass{span.pass_}-{what}"


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
