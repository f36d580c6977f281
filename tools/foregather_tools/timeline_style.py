# SPDX-License-Identifier: Apache-2.0
"""Colours, labels and units of the timeline's picture.

Decides how a unit, a label and a time look; where things stand is decided in timeline_picture.
"""

import math
import re
from functools import lru_cache

import matplotlib
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

# Okabe and Ito's palette, told apart with any colour vision; neighbouring layers differ in
# lightness too.
LAYERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
EMBEDDING = "#F0E442"
HEAD = "#D55E00"
OTHER = "#999999"
INK = "#222222"
HATCH = "#555555"
SHORT = {"layer": "L", "embedding": "E", "head": "H"}

# Text stays text in SVG, and the same spans give the same file.
RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "foregather",
    "hatch.linewidth": 0.7,
    "font.family": "DejaVu Sans",
}


def unit_colour(unit: str) -> str:
    """The colour of a unit, wherever it stands: layers take turns."""
    name, _, number = unit.partition(".")
    if name == "layer" and number.isdigit():
        return LAYERS[int(number) % len(LAYERS)]
    return {"embedding": EMBEDDING, "head": HEAD}.get(name, OTHER)


def tint(colour: str, share: float) -> tuple[float, ...]:
    """The colour with so much white in it."""
    return tuple(1 - (1 - part) * (1 - share) for part in to_rgb(colour))


def ink_on(colour) -> str:
    """Black or white, whichever is legible on the colour."""
    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.52 else "white"


def short_name(unit: str) -> str:
    """layer.12 as L12."""
    match = re.fullmatch(r"(\w+)\.(\d+)", unit)
    return SHORT[match[1]] + match[2] if match and match[1] in SHORT else unit


@lru_cache(maxsize=4096)
def text_points(text: str, size: float) -> float:
    """Width of a text in points."""
    font = FontProperties(family=matplotlib.rcParams["font.family"], size=size)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def label_that_fits(
    texts: list[str], size: float, width: float, height: float
) -> tuple[str, int] | None:
    """(text, rotation) of the first of the texts that fits into width x height points, upright
    last; None if none does.
    """
    for text in texts:
        if text_points(text, size) + 4 <= width and size * 1.2 <= height:
            return text, 0
    for text in texts:
        if size * 1.25 <= width and text_points(text, size) + 4 <= height:
            return text, 90
    return None


def time_unit(nanoseconds: float, least: float = 1) -> tuple[str, float]:
    """(name, ns) of the largest unit of which a stretch of time has at least so many."""
    for name, length in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= least * length:
            return name, length
    return "ns", 1.0


def digits(value: float) -> str:
    """A number with three digits, or more where they stand before the point."""
    places = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(max(places, 0), 6)}f}"


def duration(nanoseconds: float) -> str:
    """A duration with its unit."""
    name, length = time_unit(nanoseconds) if nanoseconds else ("s", 1e9)
    return f"{digits(nanoseconds / length)} {name}"
