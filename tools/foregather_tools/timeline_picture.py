# SPDX-License-Identifier: Apache-2.0
"""Draws spans as rows of bars: ranks as groups, streams as rows, an arrow from each gather to the
compute that used it, exposed waits hatched; several runs one above the other.

Decides what is drawn; where it stands is decided in timeline_canvas, which spans are shown and what
the heading says before.
"""

from collections.abc import Sequence
from typing import BinaryIO

import matplotlib
from matplotlib.legend_handler import HandlerPatch
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from . import timeline_style as style
from .spans import Span, flows, overlap_ns
from .timeline_canvas import (
    BAR,
    BETWEEN_RANKS,
    HEADING_LINE,
    LABEL,
    LEFT,
    PANEL_LINES,
    PASS_LINE,
    RANK_LINE,
    RIGHT,
    Canvas,
    Picture,
    RunOnCanvas,
)


def _bars(panel: RunOnCanvas) -> None:
    """Gathers in light colours, computes in full ones, waits hatched."""
    canvas = panel.canvas
    for span in panel.spans:
        left, top, width = panel.x(span.begin), panel.row(span), span.end - span.begin
        colour = style.unit_colour(span.unit)
        look = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.4}
        if span.kind == "gather":
            look = {"facecolor": style.tint(colour, 0.6), "edgecolor": colour, "linewidth": 0.8}
        if span.kind == "wait":
            look = {"facecolor": "white", "edgecolor": style.HATCH, "linewidth": 0.3}
            look["hatch"] = "/////"
        bar = Rectangle((left, top), width / canvas.unit_ns, BAR, **look)
        bar.set_gid(panel.name(span, f"{span.kind}-{span.unit}-{span.sequence}"))
        canvas.axes.add_patch(bar)
        _label(panel, span, top, look["facecolor"])


def _label(panel: RunOnCanvas, span: Span, top: float, colour) -> None:
    """The unit's name in its bar, or the length of a wait, if there is room for it."""
    canvas = panel.canvas
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
        panel.x((span.begin + span.end) // 2),
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


def _arrows(panel: RunOnCanvas) -> None:
    """One for each compute whose gather is shown."""
    for gather, compute in flows(panel.spans):
        begin = (panel.x(gather.end), panel.row(gather) + BAR)
        end = (panel.x(compute.begin), panel.row(compute))
        arrow = _arrow(begin, end)
        arrow.set_gid(panel.name(compute, f"flow-{gather.unit}-{compute.sequence}"))
        panel.canvas.axes.add_patch(arrow)


def _panel_lines(panel: RunOnCanvas) -> None:
    """Above a run its title and facts; where it ends."""
    if not panel.panel.title:
        return
    canvas = panel.canvas
    transform = canvas.axes.get_yaxis_transform()
    left = -(LEFT - RIGHT) / (canvas.width - LEFT - RIGHT)
    looks = {"transform": transform, "va": "center", "color": style.INK}
    top = panel.first - PANEL_LINES
    canvas.axes.text(left, top + 0.24, panel.panel.title, fontsize=11, fontweight="bold", **looks)
    canvas.axes.text(left, top + 0.47, panel.panel.facts, fontsize=9, **looks)
    if panel is not canvas.panels[0]:
        canvas.axes.axhline(top + 0.02, color="#777777", linewidth=1.2)
    end = panel.x(panel.end)
    edge = (panel.first + RANK_LINE, panel.bottom - BETWEEN_RANKS)
    canvas.axes.plot([end, end], edge, color=style.HEAD, linewidth=1.6, zorder=5, clip_on=False)


def _rank_lines(panel: RunOnCanvas) -> None:
    """Above each group its rank, and what share of the time shown was exposed."""
    canvas = panel.canvas
    for rank in panel.ranks:
        mine = [span for span in panel.spans if span.rank == rank]
        begin, end = min(s.begin for s in mine), max(s.end for s in mine)
        exposed = overlap_ns(mine, "wait", begin, end)
        shown = end - begin
        said = f"exposed {style.duration(exposed)} of the {style.duration(shown)} shown"
        if not any(span.kind == "gather" for span in mine):
            said = "weights are read in place, nothing is gathered"
        elif shown:
            said += f" ({100 * exposed / shown:.0f} %)"
        y = panel.top(rank) + RANK_LINE / 2
        looks = {"va": "center", "fontsize": 9, "color": style.INK}
        left = -(LEFT - 0.12) / (canvas.width - LEFT - RIGHT)
        transform = canvas.axes.get_yaxis_transform()
        name = f"rank {rank}"
        canvas.axes.text(left, y, name, transform=transform, fontweight="bold", **looks)
        canvas.axes.text(0, y, said, transform=transform, **looks)
        if rank != panel.ranks[0]:
            canvas.axes.axhline(panel.top(rank), color="#CCCCCC", linewidth=0.8)
        _pass_lines(panel, mine)


def _pass_lines(panel: RunOnCanvas, mine: Sequence[Span]) -> None:
    """Where each pass (and each direction of it) begins to compute, with its number."""
    canvas = panel.canvas
    starts: dict[tuple[int, str], int] = {}
    for span in sorted((s for s in mine if s.stream == "compute"), key=lambda s: s.begin):
        starts.setdefault((span.pass_, span.direction), span.begin)
    several = len({direction for _, direction in starts}) > 1
    ends = [*list(starts.values())[1:], canvas.end + panel.zero]
    top = panel.top(mine[0].rank) + RANK_LINE
    for ((number, direction), begin), end in zip(starts.items(), ends):
        x = panel.x(begin)
        bottom = panel.top(mine[0].rank) + canvas.group - BETWEEN_RANKS
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


def _axis(canvas: Canvas) -> None:
    """Names of the streams, and the time."""
    axes = canvas.axes
    ticks, names = [], []
    for panel in canvas.panels:
        for rank in panel.ranks:
            for stream in canvas.streams:
                ticks.append(panel.row_of(rank, stream) + BAR / 2)
                names.append(stream)
    axes.set_yticks(ticks, names, fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=int(canvas.width), steps=[1, 2, 5, 10]))
    zero = canvas.panels[0].zero
    since = style.duration(zero) if zero > 0 else ""
    after = f" (0 is {since} after the first span that was kept)" if since else ""
    if canvas.several:
        after = " (0: the compute stream comes to the first pass shown; one scale for all runs)"
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


def _legend(canvas: Canvas, spans: Sequence[Span]) -> None:
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
        canvas = Canvas(picture)
        for panel in canvas.panels:
            _bars(panel)
            _arrows(panel)
            _panel_lines(panel)
            _rank_lines(panel)
        _axis(canvas)
        _legend(canvas, [span for panel in picture.panels for span in panel.spans])
        for number, (text, looks) in enumerate(canvas.lines):
            y = 1 - (0.12 + HEADING_LINE * (number + 0.5)) / canvas.height
            canvas.figure.text(RIGHT / canvas.width, y, text, va="center", **looks)
        facts = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        canvas.figure.savefig(file, format=kind, dpi=150, metadata=facts)
