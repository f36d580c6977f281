# SPDX-License-Identifier: Apache-2.0
"""The tool loss_curve: what training runs learned, as a picture.

Decides which runs are shown, how they are named, and what is said of each; how it is drawn is
decided in loss_picture.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .command_line import Refusal, count, printable, run
from .loss_picture import COLOURS, Curve, draw
from .part_file import check_output, new_file
from .training_runs import TrainingRun, read_training

TOOL = "loss_curve"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Draws loss, gradient norm and learning rate over the steps of training runs. "
        "Steps come from results files, also from the .part file of a run that goes on, or from "
        "checkpoints; evaluations are points, and steps that were not applied crosses.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. Outputs "
        "appear under their names only when they are whole.",
    )
    add = parser.add_argument
    add("runs", metavar="FILE.h5", type=Path, nargs="+", help="a results file or a checkpoint")
    add("--png", metavar="FILE", type=Path, help="the picture as pixels")
    add("--svg", metavar="FILE", type=Path, help="the picture as lines and text")
    add(
        "--names",
        metavar="LIST",
        help="what the runs are called, with commas (default: their files' names)",
    )
    add("--title", default="", help="a line above (default: the title of a single run)")
    add(
        "--mean",
        metavar="STEPS",
        type=count,
        default=1,
        help="draw the loss as a mean over so many steps, and thin behind it as it was "
        "(default: %(default)s, no mean)",
    )
    add("--log-loss", action="store_true", help="a logarithmic axis for the loss")
    add("--replace", action="store_true", help="replace the outputs if they exist")
    return parser


def names_of(options: argparse.Namespace) -> list[str]:
    """One name a run, each its own."""
    if options.names is None:
        stems = [printable(path.name) for path in options.runs]
        return stems if len(set(stems)) == len(stems) else [printable(p) for p in options.runs]
    names = [name.strip() for name in options.names.split(",")]
    if len(names) != len(options.runs):
        raise Refusal(f"--names has {len(names)} names for {len(options.runs)} files")
    return names


def told(name: str, of: TrainingRun) -> str:
    """A run in one line."""
    good = of.loss[of.applied]
    parts = [f"steps {of.step[0]} to {of.step[-1]}"]
    if good.size:
        parts.append(f"loss {good[0]:.4f} to {good[-1]:.4f} nat, lowest {good.min():.4f}")
    if of.evaluation_step.size:
        parts.append(f"evaluation {of.evaluation_loss[-1]:.4f} at step {of.evaluation_step[-1]}")
    bad = int(np.count_nonzero(~of.applied))
    if bad:
        parts.append(f"{bad} not applied")
    if not of.complete:
        parts.append("not complete")
    return f"{name}: {', '.join(parts)}"


def loss_curve(options: argparse.Namespace) -> None:
    """Reads, draws, writes."""
    outputs = {kind: path for kind in ("png", "svg") if (path := getattr(options, kind))}
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        raise Refusal("two outputs have the same name")
    for path in outputs.values():
        check_output(path, options.replace)
        if any(path.exists() and one.exists() and path.samefile(one) for one in options.runs):
            raise Refusal(f"{path} is one of the runs' files: give another name")
    if len(options.runs) > len(COLOURS):
        raise Refusal(f"{len(options.runs)} runs cannot be told apart, at most {len(COLOURS)}")
    runs = [read_training(path) for path in options.runs]
    names = names_of(options)
    curves = [
        Curve(of, name, colour, options.mean) for of, name, colour in zip(runs, names, COLOURS)
    ]
    title = options.title or (runs[0].title if len(runs) == 1 else "")
    for kind, path in outputs.items():
        with new_file(path, options.replace) as file:
            draw(curves, title, file, kind, options.log_loss)
    for curve in curves:
        print(told(curve.name, curve.run))


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if not (options.png or options.svg):
        parser.error("name at least one output: --png or --svg")
    return run(TOOL, lambda: loss_curve(options))
