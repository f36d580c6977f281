# SPDX-License-Identifier: Apache-2.0
"""Writes small results files for the tests of the tools that read them, as the program writes them.

Decides the files' layout and a simple run's spans; what is changed in a file is the test's affair.
"""

from pathlib import Path

import h5py
import numpy as np

UNITS = ("embedding.0", "layer.0", "layer.1", "head.0")
GATHER, COMPUTE = 400_000, 1_000_000


def spans(
    depth: int, passes: int = 2, ranks: int = 2, units: tuple[str, ...] = UNITS
) -> list[dict]:
    """The spans of a run whose gathers take 0.4 ms and whose computes take 1 ms; a unit's gather is
    issued `depth` uses ahead, over passes too.
    """
    rows = []
    for rank in range(ranks):
        uses = [(number, unit) for number in range(passes) for unit in units]
        gathered: dict[int, int] = {}
        now = link = 100_000 * rank
        sequence = 0
        for use, (number, unit) in enumerate(uses):
            common = {"rank": rank, "direction": "forward", "issued_ns": now}
            for ahead in range(len(gathered), min(use + depth, len(uses) - 1) + 1):
                begin = max(link, now)
                link = gathered[ahead] = begin + GATHER
                gather = {"stream": "gather", "kind": "gather", "unit": uses[ahead][1]}
                place = {
                    "pass": uses[ahead][0],
                    "step": uses[ahead][0],
                    "slot": ahead % (depth + 1),
                }
                times = {"sequence": sequence, "begin_ns": begin, "end_ns": link, "bytes": 1000}
                rows.append(common | gather | place | times)
                sequence += 1
            place = {"pass": number, "step": number, "slot": use % (depth + 1), "bytes": 0}
            compute = common | place | {"stream": "compute", "unit": unit, "sequence": sequence}
            sequence += 1
            if gathered[use] > now:
                rows.append(compute | {"kind": "wait", "begin_ns": now, "end_ns": gathered[use]})
                now = gathered[use]
            rows.append(compute | {"kind": "compute", "begin_ns": now, "end_ns": now + COMPUTE})
            now += COMPUTE
    return rows


def fixed(words: list[str]) -> np.ndarray:
    """Strings as the program stores them."""
    return np.array([word.encode() for word in words])


def write_table(file: h5py.File, group: str, table: dict[str, list]) -> None:
    """Columns under a group."""
    for name, values in table.items():
        column = fixed(values) if isinstance(values[0], str) else np.array(values)
        file[f"{group}/{name}"] = column


def write_score(file: h5py.File) -> None:
    """Three documents of 3, 1 and 4 tokens."""
    logprob = np.array([np.nan, -1.5, -2.5, np.nan, np.nan, -0.5, -1.0, -3.0], "f4")
    file["score/logprob"] = logprob
    file["score/greedy"] = np.array([0, 1, 0, 0, 0, 1, 1, 0], "u1")
    file["score/offsets"] = np.array([0, 3, 4, 8])
    file["score/document_nll"] = np.array([4.0, 0.0, 4.5])
    file["score/document_scored_tokens"] = np.array([2, 0, 3])
    file["score/id"] = fixed(["a", "b", "c"])
    file["score"].attrs["loss"] = 1.7
    file["score"].attrs["perplexity"] = float(np.exp(1.7))
    file["score"].attrs["scored_tokens"] = np.int64(5)


def write_results(
    path: Path,
    *,
    depth: int = 1,
    exposed: float = 1.0,
    run: float = 10.0,
    peak: int = 300 * 2**20,
    rows: list[dict] | None = None,
    link_rate: float = 0.0,
    **deck: str,
) -> Path:
    """A whole results file of 2 ranks. `rows` None: the spans of spans(depth), []: none; words of
    `deck` are keys with __ for the point.
    """
    keys = {"job.name": "score", "fsdp.forward_prefetch": str(depth), "output.timeline": "true"}
    keys |= {name.replace("__", "."): value for name, value in deck.items()}
    rows = spans(depth) if rows is None else rows
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_(b"foregather.results")
        file.attrs["format_version"] = 1
        file.attrs["title"] = np.bytes_("a tiny run, très court".encode())
        write_score(file)
        prefetch = {
            "direction": ["forward"],
            "requested": [depth],
            "depth": [depth],
            "verdict": ["observed"],
            "exposed_s": [exposed],
            "overlapped_s": [0.25],
        }
        write_table(file, "timing/prefetch", prefetch)
        write_table(file, "timing/phases", {"name": ["setup", "run"], "seconds_max": [0.5, run]})
        phases = file["timing/phases"].attrs
        phases["passes"] = 1 + max((row["pass"] for row in rows), default=1)
        phases["tokens_per_second"] = 8 / run
        if link_rate:
            phases["link_rate_emulated"] = link_rate
        memory = {"peak_host_bytes": [peak // 2, peak], "device_bytes": [2**20, 2**20]}
        write_table(file, "timing/ranks", {"tokens": [4, 4]} | memory)
        write_table(file, "provenance/deck", {"key": [*keys], "value": [*keys.values()]})
        write_table(file, "provenance/hosts", {"rank": [0, 1], "host": ["n0", "n1"]})
        if rows:
            write_table(file, "timing/spans", {key: [row[key] for row in rows] for key in rows[0]})
        file.attrs["complete"] = 1
    return path


def write_bench(path: Path, rows: list[dict], link_rate: float = 1e8) -> Path:
    """The results file of a bench, as far as it is compared: a row of /bench/depths for each entry,
    whose figures are those of a plain one unless named.
    """
    plain = {"transport": "mpi", "tokens": 1024, "depth": 0, "step_s": 2.0, "ratio": 1.0}
    plain |= {
        "ratio_low": 1.0,
        "ratio_high": 1.0,
        "forward_exposed_s": 1.0,
        "exposed_reduce_s": 0.0,
    }
    plain["verdict"] = "observed"
    whole = [plain | row for row in rows]
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_(b"foregather.results")
        file.attrs["format_version"] = 1
        write_table(file, "bench/depths", {key: [row[key] for row in whole] for key in plain})
        write_table(file, "bench/configurations", {"transport": ["mpi"], "tokens": [1024]})
        file["bench/configurations"].attrs["link_rate_bytes_per_s"] = link_rate
        file["bench/configurations"].attrs["steps"] = 2
        file["bench/configurations"].attrs["pairs"] = 5
        file.attrs["complete"] = 1
    return path
