# SPDX-License-Identifier: Apache-2.0
"""A profiler sees what the program enqueues under the names of its spans, in the schedule's order.

Decides what must be told; the profiler is a library that NVTX loads and that writes down what it is
told (tests/cuda_emulation/range_recorder.cpp), found by NVTX's own variable.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_runs import program
from run_foregather import Result

RECORDER = program().parent / "lib" / "libforegather_ranges.so"
CALLED = {"gather": "gather of ", "copy": "copy of ", "reduce": "reduction of ", "compute": ""}


@dataclass
class Range:
    """A range of a rank, and the names of those around it."""

    name: str
    number: int
    within: tuple[str, ...]


def read_ranges(file: Path) -> list[Range]:
    """The ranges of a process in the order of their begins; they must nest and all be ended."""
    found, open_ones = [], []
    for line in file.read_text().splitlines():
        if line == "-":
            open_ones.pop()
            continue
        _, number, name = line.split(" ", 2)
        found.append(Range(name, int(number), tuple(open_ones)))
        open_ones.append(name)
    assert open_ones == []
    return found


@pytest.fixture
def watched(on_gpus, tmp_path):
    """watched(deck, ranks): the run's results, and the ranges of each rank."""

    def run(deck: dict, ranks: int) -> tuple[Result, list[list[Range]]]:
        file = tmp_path / "ranges"
        env = {"NVTX_INJECTION64_PATH": str(RECORDER), "FOREGATHER_RANGES": str(file)}
        result = on_gpus(deck, ranks, env).result
        found = [read_ranges(each) for each in sorted(tmp_path.glob("ranges.*"))]
        assert len(found) == ranks
        return result, found

    return run


def span_names(result: Result, rank: int, kinds: tuple[str, ...]) -> list[str]:
    """What a rank's spans of these kinds are called, in the order of enqueuing."""
    table = result.table("/timing/spans")
    rows = [
        (int(table["sequence"][row]), CALLED[kind] + table["unit"][row])
        for row, kind in enumerate(table["kind"])
        if kind in kinds and table["rank"][row] == rank
    ]
    return [name for _, name in sorted(rows)]


def names(ranges: list[Range], *starts: str) -> list[str]:
    """The names of ranges, of those that begin so."""
    return [each.name for each in ranges if each.name.startswith(starts)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranges_have_the_names_and_the_order_of_the_spans(ranks, golden, watched):
    keys = golden("llama") | {"data.max_documents": 2 * ranks, "batch.tokens": 1}
    result, found = watched(keys, ranks)
    expected = [span_names(result, rank, ("gather", "compute")) for rank in range(ranks)]
    assert sorted([each.name for each in ranges] for ranges in found) == sorted(expected)
    for ranges in found:
        computes = [each for each in ranges if " of " not in each.name]
        assert [each.number for each in computes] == list(range(len(computes)))
        assert not any(each.within for each in ranges)
        assert bool(names(ranges, "gather of ")) == (ranks > 1)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_range_of_a_gather_comes_so_many_uses_ahead_as_the_depth_says(depth, golden, watched):
    keys = golden("llama") | {"fsdp.forward_prefetch": depth}
    for ranges in watched(keys, 2)[1]:
        place = {(" of " in each.name, each.number): at for at, each in enumerate(ranges)}
        gathers = [each for each in ranges if " of " in each.name]
        last = max(each.number for each in ranges)
        assert len(gathers) > 10
        for each in gathers:
            before = max(each.number - depth, 0)
            assert place[True, each.number] < place[False, before]
            if before > 0:
                assert place[True, each.number] > place[False, before - 1]
        assert {each.number for each in gathers} == set(range(last + 1))


def test_copies_of_parts_in_host_memory_have_ranges(golden, watched):
    result, found = watched(golden("llama") | {"fsdp.offload": "params"}, 2)
    for ranges in found:
        copies = names(ranges, "copy of ")
        assert [name.removeprefix("copy of ") for name in copies] == [
            name.removeprefix("gather of ") for name in names(ranges, "gather of ")
        ]
        assert copies == span_names(result, 0, ("copy",))


@pytest.mark.parametrize("ranks", [1, 2])
def test_reductions_lie_in_the_compute_of_their_unit_and_each_step_has_an_optimizer(
    ranks, golden, watched, tmp_path
):
    scored = golden("llama")
    keys = {
        "job.name": "train",
        "model.weights": scored["model.weights"],
        "data.tokens": scored["data.tokens"],
        "batch.tokens": 64,
        "train.steps": 2,
        "train.learning_rate": 0.003,
        "train.batch_documents": 4,
        "checkpoint.directory": tmp_path / "checkpoints",
    }
    result, found = watched(keys, ranks)
    for ranges in found:
        reductions = [each for each in ranges if each.name.startswith("reduction of ")]
        assert [each.name for each in reductions] == span_names(result, 0, ("reduce",))
        assert reductions
        for each in reductions:
            assert each.within == (each.name.removeprefix("reduction of "),)
        assert [each.number for each in ranges if each.name == "optimizer"] == [1, 2]
