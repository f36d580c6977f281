# SPDX-License-Identifier: Apache-2.0
"""Runs the program over tokens per step, types and depths, and prints tables of medians.

Decides what is run and how often; each figure is read from a results file of the program. Runs that
are compared are taken in turn, so that a machine that changes its speed slows them alike.
"""

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


from .command_line import Failure, Refusal, check_stop, run
from .results_file import attribute, columns, open_results, prefetches
from .schedule_limit import schedule_limit
from .spans import read_spans
from .token_reader import open_tokens
from .weights_reader import open_weights

CURVE = (256, 512, 1024, 2048)
TYPES = ("fp32", "bf16")
LIBRARIES = ("onednn", "openblas", "blis")
LOAD_PIECE = 8 << 20
FEW = 8  # Documents where a link makes runs long.


@dataclass(frozen=True)
class Figures:
    """Of one run. Seconds are of the slowest rank, bytes of all ranks together."""

    tokens_per_second: float
    first_compute_s: float
    run_s: float
    compute_s: float
    products_s: float
    load_s: float
    exposed_s: float
    verdict: str
    proportional_bytes: int
    bytes_read: int
    bytes_gathered: int
    limit_s: float  # of rank 0's schedule at the emulated rate, 0 without one
    took_s: float


@dataclass
class Bench:
    """How runs are started, and the folder for their files."""

    options: argparse.Namespace
    folder: Path

    def score(self, settings: dict[str, object]) -> Figures:
        """Runs the program once."""
        check_stop()
        results = self.folder / "results.h5"
        given = {
            "model.weights": self.options.weights,
            "data.tokens": self.options.tokens,
            "data.max_documents": self.options.documents,
            "device.threads": 1,
            "output.file": results,
            "output.existing": "replace",
        } | settings
        deck_file = self.folder / "bench.deck"
        deck_file.write_text("[job]\nname = score\n")
        command = [*shlex.split(self.options.mpirun), "-n", str(self.options.ranks)]
        command += [str(self.options.program), str(deck_file)]
        command += [f"--{key}={value}" for key, value in given.items()]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr}")
        return figures(results)

    def in_turn(self, cases: dict[str, dict[str, object]]) -> dict[str, list[Figures]]:
        """Every case `repeat` times, A B A B, after one run of the first to warm the files."""
        found: dict[str, list[Figures]] = {name: [] for name in cases}
        self.score(next(iter(cases.values())))
        for _ in range(self.options.repeat):
            for name, settings in cases.items():
                found[name].append(self.score(settings))
        return found


def figures(path: Path) -> Figures:
    """Reads the figures of a run."""
    with open_results(path) as file:
        phases = columns(file["timing/phases"])
        longest = dict(zip(phases["name"], phases["seconds_max"]))
        ranks = columns(file["timing/ranks"])
        prefetch = prefetches(file)[0]
        rate = attribute(file, "timing/phases", "link_rate_emulated") or 0.0
        took, limit = (0.0, 0.0)
        if rate > 0:
            spans = read_spans(path, file)
            mine = spans.select([0], spans.passes)
            took, limit = schedule_limit(mine, rate)
        return Figures(
            tokens_per_second=attribute(file, "timing/phases", "tokens_per_second") or 0.0,
            first_compute_s=attribute(file, "timing/phases", "first_compute_s") or 0.0,
            run_s=float(longest["run"]),
            compute_s=float(longest["compute"]),
            products_s=float(longest["products in compute"]),
            load_s=float(longest["load"]),
            exposed_s=prefetch.exposed_s,
            verdict=prefetch.verdict,
            proportional_bytes=int(ranks["proportional_bytes"].max()),
            bytes_read=int(ranks["bytes_read"].sum()),
            bytes_gathered=int(ranks["bytes_gathered"].sum()),
            limit_s=limit,
            took_s=took,
        )


def median(found: Sequence[Figures], figure: str) -> float:
    """The median of a figure over runs."""
    return statistics.median(getattr(one, figure) for one in found)


def rate(bytes_per_second: float) -> str:
    """As a deck writes it."""
    return f"{bytes_per_second / 1e6:.6f} MB/s"


def rows(heading: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return lines + ["| " + " | ".join(row) + " |" for row in table] + [""]


def libraries(bench: Bench) -> list[str]:
    """Speed of each product library that can be loaded."""
    cases = {}
    for name in LIBRARIES:
        for kind in TYPES:
            settings = {"device.products": name, "fsdp.param_dtype": kind, "batch.tokens": 1024}
            try:
                bench.score(settings)
            except Failure:
                print(f"({name} cannot be loaded here)\n")
                break
            cases[f"{name} {kind}"] = settings
    table = [
        [*name.split(), f"{median(runs, 'tokens_per_second'):.0f}"]
        for name, runs in bench.in_turn(cases).items()
    ]
    heading = ["device.products", "type", "tokens/s of all ranks"]
    return ["Product libraries, 1024 tokens per rank and step:", "", *rows(heading, table)]


def curve(bench: Bench) -> list[str]:
    """Speed over tokens per step, in both types."""
    cases = {
        f"{kind} {tokens}": {"fsdp.param_dtype": kind, "batch.tokens": tokens}
        for kind in TYPES
        for tokens in CURVE
    }
    found = bench.in_turn(cases)
    table = []
    for name, runs in found.items():
        other = 1 - median(runs, "products_s") / median(runs, "compute_s")
        table.append(
            [
                *name.split(),
                f"{median(runs, 'tokens_per_second'):.0f}",
                f"{100 * other:.1f} %",
                f"{median(runs, 'proportional_bytes') / 2**20:.0f} MiB",
                f"{median(runs, 'first_compute_s'):.2f} s",
            ]
        )
    heading = ["type", "tokens per rank and step", "tokens/s of all ranks", "of compute not in "
               "products", "proportional memory of a rank", "start to first compute"]
    return ["Weights read in place, one thread a rank:", "", *rows(heading, table)]


def plain_read(path: Path, ranks: int) -> float:
    """Bytes per second at which `ranks` processes read their parts of a file, once it is cached.

    Into memory as large as the part, touched before.
    """
    script = (
        "import sys, time\n"
        "path, first, last, piece = sys.argv[1], *map(int, sys.argv[2:])\n"
        "memory = memoryview(bytearray(last - first))\n"
        "with open(path, 'rb', buffering=0) as file:\n"
        "    sys.stdin.readline()\n"
        "    file.seek(first)\n"
        "    done, begin = 0, time.perf_counter()\n"
        "    while done < last - first:\n"
        "        done += file.readinto(memory[done : done + piece])\n"
        "print(time.perf_counter() - begin)\n"
    )
    size = path.stat().st_size
    bounds = [size * rank // ranks for rank in range(ranks + 1)]
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(a), str(b), str(LOAD_PIECE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for a, b in zip(bounds, bounds[1:])
    ]
    time.sleep(0.5)  # Until all wait for their line.
    for reader in readers:
        reader.stdin.write("\n")
        reader.stdin.flush()
    return size / max(float(reader.communicate()[0]) for reader in readers)


def load(bench: Bench) -> list[str]:
    """How fast weights come from a cached file, beside plain read()."""
    ours, plain = [], []
    settings = {"comm.transport": "mpi", "data.max_documents": 1}
    bench.score(settings)
    for _ in range(max(5, bench.options.repeat)):
        plain.append(plain_read(bench.options.weights, bench.options.ranks))
        one = bench.score(settings)
        ours.append(one.bytes_read / one.load_s)
    a, b = max(ours), max(plain)  # Whatever disturbs a read only slows it.
    return [
        f"Load of the cached weights into the shards: {a / 1e9:.2f} GB/s; plain read() of the file "
        f"by as many processes: {b / 1e9:.2f} GB/s; ratio {a / b:.2f} (the best of each).",
        "",
    ]


def link(bench: Bench) -> list[str]:
    """Depth 0 against 1 over an emulated link at balance, and bf16 where gathers are the bound."""
    base = {"comm.transport": "mpi", "batch.tokens": 1024, "data.max_documents": 2 * FEW}
    alone = bench.score(base)
    balance = alone.bytes_gathered / bench.options.ranks / alone.compute_s
    depths = bench.in_turn(
        {
            str(depth): base | {"fsdp.forward_prefetch": depth, "comm.link_rate": rate(balance)}
            for depth in (0, 1)
        }
    )
    table = [
        [
            depth,
            runs[0].verdict,
            f"{median(runs, 'run_s'):.2f} s",
            f"{median(runs, 'exposed_s'):.2f} s",
            f"{statistics.median(one.took_s / one.limit_s for one in runs):.3f}",
        ]
        for depth, runs in depths.items()
    ]
    ratio = median(depths["0"], "run_s") / median(depths["1"], "run_s")
    slow = {"comm.link_rate": rate(balance / 4), "data.max_documents": FEW}
    wire = bench.in_turn({kind: base | slow | {"fsdp.param_dtype": kind} for kind in TYPES})
    faster = median(wire["fp32"], "run_s") / median(wire["bf16"], "run_s")
    heading = ["depth", "verdict", "run", "exposed", "measured / schedule's limit"]
    return [
        f"Over an emulated link of {balance * 8e-9:.2f} Gb/s, at which gathers take as long as "
        "computes:",
        "",
        *rows(heading, table),
        f"Depth 0 / depth 1: {ratio:.2f}. At a quarter of that rate, where gathers are the bound, "
        f"bf16 is {faster:.2f} times as fast as fp32.",
        "",
    ]


def machine() -> str:
    """This machine in a line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")
    flags = next((x.split() for x in lines if x.startswith("flags")), [])
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16") if flag in flags]
    return f"{name}, {os.cpu_count()} cores, {' '.join(wide) or platform.machine()}"


PARTS = {"libraries": libraries, "curve": curve, "load": load, "link": link}


def check(options: argparse.Namespace) -> None:
    """Refuses what no run could be made with."""
    for name in ("ranks", "repeat", "documents"):
        if getattr(options, name) < 1:
            raise Refusal(f"--{name} {getattr(options, name)}: give 1 or more")
    for path in (options.program, options.weights, options.tokens):
        if not path.is_file():
            raise Refusal(f"{path} does not exist; `make bench` makes what is needed")
    with open_weights(options.weights):
        pass
    with open_tokens(options.tokens):
        pass


def bench(options: argparse.Namespace) -> None:
    """Measures and prints."""
    check(options)
    with tempfile.TemporaryDirectory(prefix="foregather-bench-") as folder:
        of = Bench(options, Path(folder))
        print(f"{machine()}; {options.ranks} ranks, medians of {options.repeat} runs in turn\n")
        for name in options.parts or PARTS:
            print("\n".join(PARTS[name](of)), flush=True)


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("weights", type=Path, help="weights file")
    parser.add_argument("tokens", type=Path, help="token file")
    parser.add_argument("--program", type=Path, default=Path("foregather"), help="(./foregather)")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none")
    parser.add_argument("--ranks", type=int, default=2, help="(2)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each setting (3)")
    parser.add_argument("--documents", type=int, default=24, help="documents of a run (24)")
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="(all)")
    options = parser.parse_args(argv)
    options.program = options.program.resolve()
    return run("bench", lambda: bench(options))
