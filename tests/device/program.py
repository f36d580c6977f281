#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program itself on the device: golden models against their references, and under NVIDIA's
compute-sanitizer.

Decides nothing about what is near enough: the limits are those of tests/golden. FOREGATHER names
the program.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tools", "tests/support", "tests/golden")]

from golden_models import GOLDEN, call_tool  # noqa: E402
from run_foregather import Foregather, Result  # noqa: E402

MODELS = sorted(f.name for f in GOLDEN.iterdir() if (f / "model.safetensors").exists())
LARGEST = {"fp32": 5e-5, "bf16": float("inf")}  # |difference| of a log-probability, nat
MEAN = {"fp32": 5e-5, "bf16": 0.07}
LOSS = {"fp32": 1e-5, "bf16": 0.02}


class Bench:
    """Rows, and the time that is left for more of them."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.begin = time.monotonic()

    def write(self, **line: Any) -> None:
        line |= {"part": self.options.part, "emulated": self.options.emulated}
        with self.options.out.open("a") as file:
            print(json.dumps(line), file=file)

    def time_for(self, what: str) -> bool:
        """Whether there is; what is left out first is written down."""
        there = self.left() > 0
        if not there:
            self.write(cut=f"the time of this part was over before {what}")
        return there

    def left(self) -> float:
        return self.options.budget - (time.monotonic() - self.begin)

    def deck(self, name: str, dtype: str) -> dict[str, Any]:
        """A deck that scores a golden model on the device."""
        weights = self.folder / f"{name}.h5"
        if not weights.exists():
            call_tool("import_model", GOLDEN / name, weights)
        return {
            "model.weights": weights,
            "data.tokens": GOLDEN / name / "tokens.h5",
            "device.kind": "cuda",
            "fsdp.param_dtype": dtype,
        }


def differences(found: Result, name: str) -> dict[str, Any]:
    """How far the scores are from what PyTorch computed in float32."""
    with h5py.File(GOLDEN / name / "expected.h5") as file:
        wanted, loss = file["logprob"][()], file.attrs["loss"]
    logprob = found.read("/score/logprob")
    off = np.abs(logprob - wanted)
    same_places = bool(np.array_equal(np.isnan(logprob), np.isnan(wanted)))
    return {
        "largest_difference": float(np.nanmax(off)) if same_places else float("nan"),
        "mean_difference": float(np.nanmean(off)) if same_places else float("nan"),
        "loss_difference": float(abs(found.attribute("loss") - loss)),
    }


def golden(bench: Bench) -> None:
    """A row for each model and type."""
    run = Foregather(bench.folder)
    for name in MODELS[:1] if bench.options.tiny else MODELS:
        for dtype in ("fp32", "bf16"):
            if not bench.time_for(f"{name} in {dtype}"):
                return
            found = run(bench.deck(name, dtype), 0, expect=None, timeout=max(5.0, bench.left()))
            row: dict[str, Any] = {"model": name, "dtype": dtype, "run_s": found.seconds}
            if found.code != 0:
                bench.write(failed=f"{name} in {dtype}: status {found.code}: {found.stderr[-500:]}")
                continue
            row |= differences(found, name)
            row |= {"largest_limit": LARGEST[dtype], "mean_limit": MEAN[dtype]}
            row |= {"loss_limit": LOSS[dtype]}
            row["passed"] = all(
                row[f"{what}_difference"] <= row[f"{what}_limit"]
                for what in ("largest", "mean", "loss")
            )
            bench.write(table="golden", row=row)


def sanitizer(bench: Bench) -> None:
    """One golden model under memcheck, then under racecheck if there is time."""
    name = MODELS[0]
    for tool in ("memcheck", "racecheck"):
        if not bench.time_for(tool):
            return
        words = [bench.options.sanitizer, "--tool", tool, "--error-exitcode", "99"]
        run = Foregather(bench.folder, launcher=lambda ranks, words=words: words)
        deck = bench.deck(name, "bf16")
        try:
            found = run(deck, 1, expect=None, timeout=max(5.0, bench.left()))
        except AssertionError:  # That is how a run past its time ends.
            bench.write(cut=f"the time of this part was over before {tool} was done")
            return
        said = found.stdout + found.stderr
        summary = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", said)
        if summary is None:
            bench.write(failed=f"{tool} gave no summary, status {found.code}: {said[-500:]}")
            continue
        errors = int(summary[1] or summary[2])
        row = {"tool": tool, "model": name, "run_s": found.seconds, "errors": errors}
        bench.write(table="sanitizer", row=row | {"passed": errors == 0 and found.code == 0})


def main() -> None:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("golden", "sanitizer"))
    parser.add_argument("--out", type=Path, required=True, help="file to add rows to")
    parser.add_argument("--budget", type=float, required=True, help="seconds")
    parser.add_argument("--sanitizer", default="compute-sanitizer", help="the tool")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        golden(bench) if options.part == "golden" else sanitizer(bench)


if __name__ == "__main__":
    main()
