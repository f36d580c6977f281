#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of the device bench as one HDF5 file of plain columns, and as a table to read.

Decides names, units and the figures that need rows of two parts; the parts decide what is measured.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

EMULATED = "figures of an emulation on the CPU: they say nothing about any GPU"
# The unit of a column of numbers, by its name: the first pattern that is found in it.
UNITS = (
    (r"tflops$", "TFLOP/s"),
    (r"gbytes_per_s$", "GB/s"),
    (r"_s$", "s"),
    (r"bytes$", "B"),
    (r"tokens$", "tokens"),
    (r"_difference$|_limit$", "nat"),
    (r"(^|_)(ratio|share|over|of|slowdown|in|out)(_|$)", "1"),
    (r"^(layers|calls|pairs|depth|blocks|ranks|errors|gpus|best_answer|answers)$", "1"),
    (r"^(cuda_driver|cuda_runtime|copies_inside|logprobs_not_finite)$", "1"),
    (r"^(passed|registered|copies_outlast_products)$", "1"),
)
NOTES = ("skipped", "cut", "failed")


class Rows:
    """All rows so far, by table; what was left out and why; whether they are of an emulation."""

    def __init__(self, lines: Iterable[str]):
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.parts: dict[str, str] = {}  # of each table
        self.notes: list[dict[str, str]] = []
        self.emulated = False
        for line in lines:
            try:
                self.take(json.loads(line))
            except json.JSONDecodeError:  # Whoever wrote it was ended in the middle.
                self.notes.append({"part": "report", "kind": "cut", "text": f"half a row: {line}"})
        if "provenance" in self.tables:  # Several hands write it, one row is meant.
            merged: dict[str, Any] = {}
            for row in self.tables["provenance"]:
                merged |= row
            self.tables["provenance"] = [merged]
        self.derive()

    def take(self, line: dict[str, Any]) -> None:
        """One line of a rows file."""
        self.emulated |= line["emulated"]
        if "table" in line:
            self.tables.setdefault(line["table"], []).append(line["row"])
            self.parts[line["table"]] = line["part"]
        for kind in NOTES:
            if kind in line:
                self.notes.append({"part": line["part"], "kind": kind, "text": line[kind]})

    def derive(self) -> None:
        """Adds the columns that compare parts with each other."""
        best: dict[str, float] = {}
        for row in self.tables.get("products", []):
            if row["dtype"] == "bf16":
                best[row["model"]] = max(best.get(row["model"], 0), row["best_tflops"])
        for table, column in (("forward", "layers_tflops"), ("forward_families", "tflops")):
            for row in self.tables.get(table, []):
                if best.get(row["model"], 0) > 0:
                    row["share_of_best_product"] = row[column] / best[row["model"]]
        ours = {
            (row["model"], row["layers"], row["document_tokens"]): row["layers_s"]
            for row in self.tables.get("forward", [])
        }
        for row in self.tables.get("torch", []):
            same = ours.get((row["model"], row["layers"], row["document_tokens"]))
            row["torch_over_ours"] = row["layers_s"] / same if same else float("nan")


def unit_of(column: str) -> str:
    """The unit of a column of numbers; ValueError if no pattern names one."""
    for pattern, unit in UNITS:
        if re.search(pattern, column):
            return unit
    raise ValueError(f"column {column} has no unit: add one to UNITS")


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Columns in the order in which rows name them; NaN or "" where a row has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        text = any(isinstance(value, str) for value in values)
        missing: Any = "" if text else float("nan")
        columns[name] = [missing if value is None else value for value in values]
    return columns


def write(rows: Rows, path: Path, attributes: dict[str, Any]) -> None:
    """Writes the file anew, and only then puts it in place of what is there."""
    part = Path(f"{path}.part")
    with h5py.File(part, "w") as file:
        file.attrs.update(attributes)
        file.attrs["emulated"] = rows.emulated
        if rows.emulated:
            file.attrs["warning"] = EMULATED
        for table, found in rows.tables.items():
            group = file.create_group(table)
            group.attrs["part"] = rows.parts[table]
            group.attrs["emulated"] = rows.emulated
            for name, values in columns_of(found).items():
                write_column(group, name, values)
        notes = file.create_group("notes")
        for name in ("part", "kind", "text"):
            write_column(notes, name, [note[name] for note in rows.notes])
    os.replace(part, path)


def write_column(group: h5py.Group, name: str, values: list[Any]) -> None:
    """One dataset, with its unit if it holds numbers."""
    if all(isinstance(value, str) for value in values):
        group.create_dataset(name, data=np.array(values, object), dtype=h5py.string_dtype())
        return
    group.create_dataset(name, data=np.array(values)).attrs["units"] = unit_of(name)


def shown(value: Any) -> str:
    """A value in a few characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(rows: Rows) -> None:
    """All tables, then what was left out."""
    if rows.emulated:
        print(f"*** {EMULATED} ***")
    for table, found in rows.tables.items():
        print(f"\n---- {table} ----")
        if table == "provenance":
            for name, value in found[0].items():
                print(f"{name:24} {shown(value)}")
            continue
        columns = {name: [shown(v) for v in values] for name, values in columns_of(found).items()}
        wide = {name: max(len(name), *map(len, values)) for name, values in columns.items()}
        print("  ".join(name.rjust(wide[name]) for name in columns))
        for i in range(len(found)):
            print("  ".join(values[i].rjust(wide[name]) for name, values in columns.items()))
    print("\n---- left out ----")
    for note in rows.notes:
        print(f"{note['kind']:8} {note['part']}: {note['text']}")
    if not rows.notes:
        print("nothing")


def main() -> None:
    """Writes the file; --table prints it too, --value prints one value of the provenance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="JSON lines, as the parts write them")
    parser.add_argument("file", type=Path, nargs="?", help="HDF5 file to write")
    parser.add_argument("--attribute", metavar="NAME=TEXT", action="append", default=[])
    parser.add_argument("--table", action="store_true", help="print the tables")
    parser.add_argument("--value", metavar="NAME", help="print this value of the provenance")
    options = parser.parse_args()
    rows = Rows(options.rows.read_text().splitlines() if options.rows.exists() else [])
    if options.value:
        print(rows.tables.get("provenance", [{}])[0].get(options.value, ""))
    if options.file:
        write(rows, options.file, dict(word.split("=", 1) for word in options.attribute))
    if options.table:
        print_table(rows)


if __name__ == "__main__":
    sys.exit(main())
