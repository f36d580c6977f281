# SPDX-License-Identifier: Apache-2.0
"""compare as a gate: a tenth more of what costs fails, what equal runs differ by passes.

Decides what the gate's own limits must let pass and what not; how each limit is judged is tested in
test_compare.py.
"""

import numpy as np
import pytest
from compared_pairs import entry, loss, put, training_pair
from results_files import fixed, write_bench


def test_gate_passes_repeated_runs(tool, pair):
    said = tool("compare", *pair(exposed=1.03, run=10.2, peak=305 * 2**20), "--gate")
    assert said.status == 0 and said.err == "", said.err
    assert "not judged" not in said.out


def test_gate_fails_on_a_tenth_more_exposed_time(tool, pair):
    said = tool("compare", *pair(exposed=1.1), "--gate")
    assert said.status == 1 and "past 1 limit:" in said.err
    assert "--max-exposed-increase 5: exposed, forward grew from 1 to 1.1 s" in said.err


@pytest.mark.parametrize(
    ("change", "b", "message"),
    [
        (entry("score/logprob", 1, -1.4), {}, "--max-logprob-difference 5e-05"),
        (loss(1.701), {}, "--max-loss-difference 5e-05"),
        (None, {"run": 10.6}, "--max-step-increase 5: step grew from 5 to 5.3 s"),
        (None, {"peak": 332 * 2**20}, "--max-memory-increase 5"),
        (put("timing/prefetch/verdict", fixed(["not observed"])), {}, "it was `observed`"),
    ],
)
def test_gate_judges_numbers_steps_memory_and_the_verdict(tool, pair, change, b, message):
    files = pair(change or (lambda file: None), **b)
    said = tool("compare", *files, "--gate")
    assert said.status == 1 and "past 1 limit:" in said.err and message in said.err, said.err
    assert tool("compare", *files).status == 0


def test_gate_takes_tiny_times_for_noise(tool, pair):
    files = pair(a={"exposed": 0.010, "run": 0.10}, exposed=0.020, run=0.12)
    assert tool("compare", *files, "--gate").status == 0
    said = tool("compare", *files, "--gate", "--slack-seconds", "0.001")
    assert said.status == 1 and all(word in said.err for word in ("exposed, forward", "step grew"))
    # Each of two steps has half of the slack.
    files = pair(a={"exposed": 0.010, "run": 0.10}, exposed=0.010, run=0.127)
    assert tool("compare", *files, "--gate").status == 1


def test_limits_that_are_given_win_over_those_of_the_gate(tool, pair):
    files = pair(exposed=1.2, run=10.9)
    words = ("--max-exposed-increase", "30", "--max-step-increase", "10")
    assert tool("compare", *files, "--gate", *words).status == 0
    assert tool("compare", *files, "--gate", "--max-exposed-increase", "0").status == 1


def test_gate_says_what_it_cannot_judge(tool, tmp_path):
    said = tool("compare", *training_pair(tmp_path), "--gate")
    assert said.status == 0, said.err
    for name in ("--max-logprob-difference", "--max-memory-increase"):
        assert f"not judged, since neither file has such a figure: {name}" in said.out
    assert "such a figure: --max-step" not in said.out
    change = put("train/loss", np.linspace(4, 2, 6))
    said = tool("compare", *training_pair(tmp_path, change), "--gate")
    assert said.status == 1 and "--max-loss-difference 5e-05" in said.err


def test_times_over_other_links_are_not_judged_but_past_the_limit(tool, pair):
    files = pair(link_rate=1.25e8)
    said = tool("compare", *files, "--gate")
    assert said.status == 1 and "links were emulated at 0 and 1 Gb/s" in said.err
    assert tool("compare", *files, "--max-memory-increase", "5").status == 0
    files = pair(a={"link_rate": 1.25e8}, link_rate=1.25e8)
    assert tool("compare", *files, "--gate").status == 0


BENCH = [
    {"depth": 0, "step_s": 2.0},
    {"depth": 1, "step_s": 1.5, "ratio": 0.75, "ratio_low": 0.7, "ratio_high": 0.8},
    {"depth": 1, "tokens": 512, "step_s": 1.0, "ratio": 0.9, "ratio_low": 0.9, "ratio_high": 0.9},
]


@pytest.fixture
def benches(tmp_path):
    """benches(at, **changes) writes two benches, row `at` of the second changed."""

    def make(at=0, rows=BENCH, link_rate=1e8, **changes):
        other = [row | (changes if number == at else {}) for number, row in enumerate(rows)]
        one = write_bench(tmp_path / "a.h5", BENCH)
        return one, write_bench(tmp_path / "b.h5", other, link_rate)

    return make


def test_gate_compares_benches_by_transport_tokens_and_depth(tool, benches):
    files = benches(rows=list(reversed(BENCH)))
    said = tool("compare", *files, "--gate")
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "step, mpi, 1024 tokens, depth 1, s 1.5 1.5 same" in lines
    assert "step, mpi, 512 tokens, depth 1, s 1 1 same" in lines
    said = tool("compare", *benches(at=2, step_s=1.1), "--gate")
    assert said.status == 1 and "past 1 limit:" in said.err
    assert "step, mpi, 512 tokens, depth 1 grew from 1 to 1.1 s" in said.err
    assert tool("compare", *files).status == 0


def test_step_of_a_bench_is_judged_by_its_intervals_too(tool, benches):
    # Of 1.5 s the interval is from 1.4 to 1.6 s.
    assert tool("compare", *benches(at=1, step_s=1.65), "--gate").status == 0
    said = tool("compare", *benches(at=1, step_s=1.8), "--gate")
    assert said.status == 1 and "step, mpi, 1024 tokens, depth 1 grew" in said.err
    narrow = {"step_s": 1.65, "ratio_low": 0.75, "ratio_high": 0.75}
    assert tool("compare", *benches(at=1, **narrow), "--gate").status == 1


def test_exposed_time_of_a_bench_is_judged(tool, benches):
    said = tool("compare", *benches(forward_exposed_s=1.1), "--gate")
    assert said.status == 1 and "past 1 limit:" in said.err
    assert "exposed, forward, mpi, 1024 tokens, depth 0 grew from 1 to 1.1 s" in said.err
    assert tool("compare", *benches(forward_exposed_s=1.04), "--gate").status == 0


def test_tiny_times_of_a_bench_are_noise(tool, tmp_path):
    def gate(before, after):
        files = [
            write_bench(tmp_path / name, [{"step_s": 0.1, "forward_exposed_s": exposed}])
            for name, exposed in (("a.h5", before), ("b.h5", after))
        ]
        return tool("compare", *files, "--gate").status

    # Each of ten steps has a tenth of 0.02 s, beside the 5 %.
    assert gate(0.010, 0.012) == 0 and gate(0.010, 0.013) == 1


def test_verdict_of_a_bench_may_not_become_worse(tool, benches):
    files = benches(at=1, verdict="not observed")
    said = tool("compare", *files, "--gate")
    assert said.status == 1 and "past 1 limit:" in said.err
    assert "the verdict of mpi, 1024 tokens, depth 1 became `not observed`" in said.err
    assert tool("compare", *reversed(files), "--gate").status == 0


def test_benches_of_other_rows_or_links_are_past_the_limit(tool, benches):
    said = tool("compare", *benches(rows=BENCH[:2]), "--gate")
    assert said.status == 1 and "step, mpi, 512 tokens, depth 1 stands in one file only" in said.err
    said = tool("compare", *benches(link_rate=2e8), "--gate")
    assert said.status == 1 and "links were emulated at 0.8 and 1.6 Gb/s" in said.err
    assert tool("compare", *benches(link_rate=2e8)).status == 0


def test_bench_and_score_are_no_pair(tool, pair, tmp_path):
    said = tool("compare", write_bench(tmp_path / "bench.h5", BENCH), pair()[0])
    assert said.status == 1 and "only in B" in said.err
