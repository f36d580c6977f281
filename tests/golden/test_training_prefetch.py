# SPDX-License-Identifier: Apache-2.0
"""Prefetch in training on a slow link: in forward and back, for the right unit, within its bounds,
and changing no bit (T07, b3).

Decides what the recorded spans of a training run must show; test_prefetch.py asks those of scoring.
Only the test of exposed times looks at the clock, and it may try again.
"""

from functools import cache
from pathlib import Path

import fixtures
import numpy as np
import pytest
from run_foregather import Foregather, Result, group_bytes
from spans import RankSpans, spans_of

LAYERS, PASSES, TOKENS = 6, 2, 256
SHAPE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 300,
}
FORWARD = ["embedding.0", *(f"layer.{i}" for i in range(LAYERS)), "head.0"]
BACKWARD = FORWARD[:0:-1]  # An embedding's gradient needs no weights.
ATTEMPTS = 4


@pytest.fixture(scope="module")
def deck(tmp_path_factory) -> dict:
    """Two steps, each of one pass of a document on every rank."""
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "job.name": "train",
        "model.weights": fixtures.random_llama(folder / "w.h5", **SHAPE),
        "data.tokens": fixtures.random_documents(folder / "t.h5", 300, [TOKENS] * 4 * PASSES),
        "batch.tokens": TOKENS,
        "train.steps": PASSES,
        "train.learning_rate": 0.001,
        "comm.transport": "mpi",
        "device.threads": 1,
    }


@pytest.fixture(scope="module")
def attempts(deck, tmp_path_factory):
    """attempts(ranks): (waited, ahead) until prefetch has halved what is exposed, and folders."""

    def one(ranks: int) -> tuple[Result, Result]:
        folder = tmp_path_factory.mktemp("pair")
        runner = Foregather(folder)
        spans = spans_of(runner(deck, ranks), 0)
        forward = [c for c in spans.computes if c.unit == "layer.2" and c.direction == "forward"]
        compute = np.median([c.end - c.begin for c in forward])
        rate = max(gather.bytes for gather in spans.gathers) / (0.8e-9 * compute)
        results = []
        for depth in (0, 1):
            asked = {"fsdp.forward_prefetch": depth, "fsdp.backward_prefetch": depth}
            asked |= {"checkpoint.directory": folder / f"depth-{depth}"}
            asked |= {"comm.link_rate": f"{rate / 1e6:.6f} MB/s"}
            results.append(runner(deck | asked, ranks))
        return results[0], results[1]

    @cache
    def pairs(ranks: int) -> list[tuple[Result, Result]]:
        found: list[tuple[Result, Result]] = []
        while len(found) < ATTEMPTS and not any(exposed(b) < 0.5 * exposed(a) for a, b in found):
            found.append(one(ranks))
        return found

    return pairs


def exposed(result: Result) -> float:
    """Seconds in which compute waited for gathers of either direction."""
    return float(result.table("/timing/prefetch")["exposed_s"].sum())


def all_spans(result: Result) -> list[RankSpans]:
    """The spans of every rank."""
    return [spans_of(result, rank) for rank in range(len(result.table("/timing/ranks")["packs"]))]


def passes_of(spans: RankSpans) -> list[list[int]]:
    """The numbers of the computes of each pass; forward, then back, each unit once."""
    uses = len(FORWARD + BACKWARD)
    assert len(spans.computes) == PASSES * uses
    return [list(range(k * uses, (k + 1) * uses)) for k in range(PASSES)]


@pytest.mark.parametrize("ranks", (2, 4))
def test_t07_b3_gathers_run_ahead_in_the_order_of_uses_both_ways(ranks, attempts):
    for depth, result in enumerate(attempts(ranks)[0]):
        for spans in all_spans(result):
            for numbers in passes_of(spans):
                uses = [spans.computes[n] for n in numbers]
                assert [use.unit for use in uses] == FORWARD + BACKWARD
                assert [use.direction for use in uses] == ["forward"] * 8 + ["backward"] * 7
                for n in numbers[1:]:
                    if not spans.gathered_for(n):
                        continue
                    gather, before = spans.source(n), spans.computes[n - 1]
                    assert gather.direction == spans.computes[n].direction
                    assert (gather.sequence < before.sequence) == (depth == 1)
                    if depth == 1:
                        assert gather.issued <= before.end
                    else:
                        assert gather.begin >= before.end


@pytest.mark.parametrize("ranks", (2, 4))
def test_t07_b3_what_is_resident_is_not_gathered_again_and_nothing_is_lost(ranks, attempts):
    for depth, result in enumerate(attempts(ranks)[0]):
        table = result.table("/timing/ranks")
        for spans in all_spans(result):
            assert spans.most_alive() == depth + 1
            for numbers in passes_of(spans):
                resident = [n for n in numbers if not spans.gathered_for(n)]
                at_the_turn = numbers[len(FORWARD) : len(FORWARD) + 1 + depth]
                assert resident == at_the_turn
                assert all(spans.source(n).direction == "forward" for n in resident)
            gathered = PASSES * (len(FORWARD + BACKWARD) - 1 - depth)
            assert len(spans.gathers) == gathered
        for name in ("gathers_issued", "gathers_waited", "gathers_freed"):
            assert table[name].tolist() == [gathered] * ranks
        figures = result.rows("/timing/prefetch", "direction")
        for row in figures.values():
            assert row["slots"] == depth + 1 and row["issued_ahead"] == row["depth"] == depth
            assert row["slot_bytes"] == result.table("/timing/units")["bytes"].max()


def all_state(result: Result, depth: int) -> dict[str, bytes]:
    """Weights, moments and losses of the last checkpoint."""
    path: Path = result.path.parent / f"depth-{depth}" / f"step-{PASSES:08}.h5"
    parts = [group_bytes(path, group) for group in ("/weights", "/optimizer", "/train")]
    found = {name: content for part in parts[:2] for name, content in part.items()}
    return found | {n: c for n, c in parts[2].items() if "loss" in n or "gradient_norm" in n}


@pytest.mark.parametrize("ranks", (2, 4))
def test_t07_depth_changes_no_bit_of_training(ranks, attempts):
    for pair in attempts(ranks):
        first, second = (all_state(result, depth) for depth, result in enumerate(pair))
        assert first == second and len(first) > 100


def test_t07_exposed_time_is_halved(attempts):
    for ranks in (2, 4):
        shares = [exposed(ahead) / exposed(waited) for waited, ahead in attempts(ranks)]
        assert min(shares) < 0.5, shares
