# SPDX-License-Identifier: Apache-2.0
"""What of the CUDA backend's code the emulated tests have executed, by gcov's counts.

Decides what must have run: every function, every line that launches, enqueues, waits, records or
checks, and most of all lines. The tests themselves decide nothing of it; this runs after them.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = re.compile(r"^src/(\w+/cuda/.*\.(cpp|cu|cuh|hpp)|backend/cuda\.cpp)$")
ACTS = re.compile(
    r"(?<![\w.>])(launch|check|settle)\(|[.>](record|wait|sync|all_gather|reduce_scatter|all_reduce|matmul|look|answer)\(|\bcuda[A-Z]\w+\("
)
LEAST = 0.95  # of all lines


def counts(emulated: Path) -> tuple[dict, dict]:
    """Executions of each (file, line), and of each (file, function)."""
    lines: dict[tuple[str, int], int] = defaultdict(int)
    functions: dict[tuple[str, str], int] = defaultdict(int)
    for data in sorted(emulated.rglob("*.gcda")):
        found = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(data)],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for text in found.stdout.splitlines():
            for file in json.loads(text)["files"]:
                name = file["file"]
                if not OURS.match(name):
                    continue
                for line in file["lines"]:
                    lines[name, line["line_number"]] += line["count"]
                for function in file["functions"]:
                    where = f"{function['demangled_name']} (line {function['start_line']})"
                    # Instances of a template, and a lambda's copies, begin at one line.
                    functions[name, str(function["start_line"])] += function["execution_count"]
                    functions.setdefault((name, where), 0)
    return lines, {key: n for key, n in functions.items() if key[1].isdigit()}


def main(emulated: Path) -> int:
    """Prints what was never executed and the share of lines; 1 if that is too much."""
    lines, functions = counts(emulated)
    if not lines:
        print(f"no counts below {emulated}: nothing has run")
        return 1
    bad = 0
    for (name, start), n in sorted(functions.items()):
        if n == 0:
            bad += 1
            print(f"{name}:{start}: a function that no test has entered")
    by_file: dict[str, list[int]] = defaultdict(list)
    for (name, number), n in sorted(lines.items()):
        by_file[name].append(n)
        text = (ROOT / name).read_text().splitlines()[number - 1]
        if n == 0 and ACTS.search(text):
            bad += 1
            print(f"{name}:{number}: never executed: {text.strip()}")
    for name, each in sorted(by_file.items()):
        print(f"{sum(n > 0 for n in each) / len(each):7.1%}  {name}")
    share = sum(n > 0 for n in lines.values()) / len(lines)
    print(f"{share:.1%} of {len(lines)} lines, {bad} omissions")
    return 1 if bad or share < LEAST else 0


sys.exit(main(Path(sys.argv[1])))
