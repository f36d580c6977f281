# SPDX-License-Identifier: Apache-2.0
"""Every key of the table acts: two of its values give runs that differ in a recorded quantity (a4).

Decides one probe for each key, and what the ledger says of keys that act, cannot act or are
clamped. A key that enters the table without a probe fails here.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import pytest
from run_foregather import Result
from said import help_keys, lines, prefetch, refusal, template_keys

WEIGHT_BYTES = 976  # Of F-BG's tensors, in float32.


def code(result: Result) -> int:
    """The exit status; a refusal must be one message that leaves no file."""
    if result.code == 2:
        refusal(result, lines_said=None)
    return result.code


def scores(name: str) -> Callable[[Result], Any]:
    """An attribute of /score."""
    return lambda result: result.attribute(name)


def total(column: str) -> Callable[[Result], int]:
    """The sum of a column of /timing/ranks."""
    return lambda result: int(result.table("/timing/ranks")[column].sum())


def device(result: Result) -> str:
    """The kind of device that was used, or that the program refused."""
    if result.code == 2:
        return "refused: " + refusal(result, "device.kind = cuda", lines_said=None)
    return result.rows("/provenance/choices", "name")["device"]["value"]


def products(result: Result) -> str:
    """The library that multiplied."""
    return result.rows("/provenance/choices", "name")["products"]["value"].split()[0]


def fastest_gather(result: Result) -> float:
    """Bytes per second of the fastest gather, off the spans."""
    spans = result.table("/timing/spans")
    gathers = spans["kind"] == "gather"
    seconds = (spans["end_ns"] - spans["begin_ns"])[gathers] * 1e-9
    return float((spans["bytes"][gathers] / seconds).max())


def log_events(result: Result) -> list[str]:
    """The events in the log that this run may have kept."""
    path = result.deck.parent / "progress.jsonl"
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def write_junk(folder: Path, name: str = "existing.h5") -> None:
    """A file where results are to go."""
    (folder / name).write_text("older results")


def flushes(result: Result) -> int:
    """How often results were brought to disk before the end."""
    return result.rows("/timing/phases", "name")["flush"]["calls"]


def existing(result: Result) -> tuple[int, bool]:
    """The status, and whether the older file is still there."""
    return result.code, result.path.read_bytes() == b"older results"


def has_spans(result: Result) -> bool:
    """Whether the timeline was kept."""
    with h5py.File(result.path) as file:
        return "spans" in file["timing"]


def timeout_code(result: Result) -> int:
    """The status; 1 must be the end that comm.timeout makes."""
    assert result.code == 0 or "comm.timeout = 0.001 s" in result.stderr
    return result.code


@dataclass
class Probe:
    """Two values of a key, a recorded quantity, and what it is in either run (... : whatever)."""

    first: Any
    second: Any
    quantity: Callable[[Result], Any]
    expected: tuple[Any, Any] = (..., ...)
    with_keys: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda folder: None
    env: dict[str, str] = field(default_factory=dict)


def columns(name: str, axis: int = 1) -> Callable[[Result], int]:
    """The extent of a dataset of /score; 0 where there is none."""

    def extent(result: Result) -> int:
        with h5py.File(result.path) as file:
            return file["score"][name].shape[axis] if name in file["score"] else 0

    return extent


def first_window(result: Result) -> str:
    """What /provenance/deck has seen of windows."""
    return result.key("data.stride")["observed"].split(":")[0]


def identity(key: str) -> Callable[[Result], str]:
    """What a resume is compared by."""
    return lambda result: result.rows("/provenance/identity", "name")[key]["value"]


def offload_refused(why: str) -> Callable[[Result], int]:
    """The status; 2 must be the refusal with this reason."""

    def status(result: Result) -> int:
        if result.code == 2:
            refusal(result, f"fsdp.offload = params: {why}", lines_said=None)
        return result.code

    return status


def environment(result: Result) -> int:
    """The status; the variable must be told, or be what the refusal names."""
    told = "OPENBLAS_CORETYPE = Nehalem overrides"
    if result.code == 2:
        refusal(result, "output.environment = strict", told, lines_said=None)
    else:
        assert f"note: {told}" in result.stdout
        assert result.key("output.environment")["observed"] == "variables that override keys: 1"
    return result.code


CORETYPE = {"OPENBLAS_CORETYPE": "Nehalem"}
MARKED = {"model.weights": "marked.h5", "data.tokens": "made-by-b.h5"}
SLOW = {"model.weights": "slow.h5", "data.tokens": "long.h5"}
EIGHT = {"data.tokens": "eight.h5", "batch.tokens": 1}
PROBES = {
    "job.name": Probe("score", "sing", code, (0, 2)),
    "job.strict": Probe(False, True, code, (0, 2), {"fsdp.forward_prefetch": 9}),
    "job.title": Probe("one", "two", lambda r: r.attribute("title", "/"), ("one", "two")),
    "job.max_time": Probe(0, 0.001, code, (0, 75)),
    "model.weights": Probe(
        "bigram.h5", "uniform.h5", lambda r: round(r.attribute("perplexity"), 5), (2.82843, 4.0)
    ),
    "data.tokens": Probe("a.h5", "ab.h5", scores("scored_tokens"), (3, 4)),
    "data.window": Probe(0, 3, total("tokens"), (6, 7)),
    "data.stride": Probe(
        1,
        2,
        first_window,
        ("windows start 1 tokens apart", "windows start 2 tokens apart"),
        {"data.window": 3},
    ),
    "data.max_documents": Probe(0, 1, scores("scored_documents"), (2, 1)),
    "data.any_tokenizer": Probe(False, True, code, (2, 0), MARKED),
    "device.kind": Probe("host", "cuda", device, ("host", ...), {"comm.transport": "auto"}),
    "device.threads": Probe(1, 2, lambda r: r.key("device.threads")["observed"]),
    "device.products": Probe("onednn", "openblas", products, ("oneDNN", "OpenBLAS")),
    "device.tf32": Probe(False, True, identity("device.tf32"), ("false", "true")),
    "mesh.shard": Probe(1, 2, total("bytes_read"), (2 * WEIGHT_BYTES, WEIGHT_BYTES)),
    "fsdp.forward_prefetch": Probe(0, 1, prefetch, ((0, 0, 0, 4), (1, 1, 3, 4))),
    "fsdp.param_dtype": Probe(
        "fp32", "bf16", lambda r: int(r.table("/timing/units")["bytes"].sum()), (..., ...)
    ),
    "fsdp.piece_bytes": Probe(0, 32, lambda r: len(r.table("/timing/units")["name"]), (4, 6)),
    "fsdp.gather_memory": Probe(
        0, "5 KiB", lambda r: int(r.table("/timing/prefetch")["slots"][0]), (2, 1)
    ),
    "fsdp.offload": Probe("none", "params", offload_refused("they are there already"), (0, 2)),
    "comm.transport": Probe(
        "mpi", "shared", lambda r: total("bytes_gathered")(r) > 0, (True, False)
    ),
    "comm.timeout": Probe("120 s", "0.001", timeout_code, (0, 1), SLOW),
    "comm.link_rate": Probe("10 MB/s", "0.1 MB/s", lambda r: fastest_gather(r) > 1.001e5),
    "batch.tokens": Probe(4, 2048, total("packs"), (2, 1)),
    "score.temperature": Probe(
        1.0, 2.0, lambda r: round(r.attribute("perplexity"), 4), (2.8284, ...)
    ),
    "score.entropy": Probe(False, True, columns("entropy", 0), (0, 6)),
    "score.top_k": Probe(2, 3, columns("top_token"), (2, 3)),
    "score.hidden_states": Probe(False, True, columns("hidden_states"), (0, 4)),
    "score.logits": Probe(False, True, columns("logits"), (0, 4)),
    "output.file": Probe(
        "one.h5", "two.h5", lambda r: r.path.exists() and r.path.name, ("one.h5", "two.h5")
    ),
    "output.existing": Probe(
        "refuse",
        "replace",
        existing,
        ((2, True), (0, False)),
        {"output.file": "existing.h5"},
        write_junk,
    ),
    "output.flush_every": Probe("30 s", 0.001, flushes, (0, ...), EIGHT),
    "output.timeline": Probe(True, False, has_spans, (True, False)),
    "output.timeline_passes": Probe(
        2,
        64,
        lambda r: set(r.table("/timing/spans")["pass"].tolist()),
        ({0, 3}, {0, 1, 2, 3}),
        EIGHT,
    ),
    "output.require": Probe("none", "observed", code, (0, 3)),
    "output.environment": Probe(
        "warn", "strict", environment, (0, 2), {"device.products": "openblas"}, env=CORETYPE
    ),
    "output.log": Probe("", "progress.jsonl", log_events, ([], ["done"])),
}


def test_a4_every_key_of_the_table_has_a_probe():
    from test_every_bench_key import PROBES as BENCH
    from test_every_plan_key import PROBES as PLAN
    from test_every_training_key import PROBES as TRAINING

    assert set(PROBES) == set(template_keys("score"))
    assert set(TRAINING) == set(template_keys("train"))
    assert set(BENCH) == set(template_keys("bench"))
    assert set(PLAN) == set(template_keys("plan"))
    assert set(PROBES) | set(TRAINING) | set(BENCH) | set(PLAN) == set(help_keys())


def test_a7_training_keys_are_inert_in_a_score_run(ordinary):
    training = set(template_keys("train")) - set(template_keys("score"))
    assert len(training) > 20
    for key in training:
        row = ordinary.key(key)
        assert (row["state"], row["observed"]) == ("inert", "")
        assert re.fullmatch("key of jobs? train(,? (bench|plan))*", row["reason"])


@pytest.mark.parametrize("key", PROBES)
def test_a4_two_values_of_the_key_give_runs_that_differ(key, tiny, folder):
    probe = PROBES[key]
    (folder / "progress.jsonl").write_text("")
    seen = []
    for value in (probe.first, probe.second):
        probe.prepare(folder)
        seen.append(probe.quantity(tiny(probe.with_keys | {key: value}, env=probe.env)))
    assert seen[0] != seen[1]
    for found, wanted in zip(seen, probe.expected):
        assert wanted is ... or found == wanted


@pytest.fixture(scope="module")
def ordinary(tiny) -> Result:
    """A run in which every key can act."""
    result = tiny(
        MARKED
        | {
            "data.any_tokenizer": True,
            "data.window": 3,
            "data.stride": 1,
            "comm.link_rate": "1 MB/s",
            "output.log": "ordinary.jsonl",
            "device.threads": 1,
            "job.title": "a title",
        }
    )
    assert result.code == 0, result.stderr
    return result


# Where what was seen may read as what was asked for.
INERT_ON_THE_HOST = {"device.tf32"}
MAY_READ_ALIKE = {"comm.transport", "output.file", "device.kind"}


@pytest.mark.parametrize("key", PROBES)
def test_every_key_is_honoured_with_what_was_observed(key, ordinary):
    row = ordinary.key(key)
    if key in INERT_ON_THE_HOST:
        assert row["state"] == "inert" and "device.kind = host" in row["reason"]
        return
    assert row["state"] == "honoured" and row["observed"], row
    assert key in MAY_READ_ALIKE or row["observed"] != row["value"]


def test_observed_values_agree_with_the_tables_of_the_run(ordinary):
    rows = ordinary.rows("/provenance/deck", "key")
    seen = {key: row["observed"] for key, row in rows.items()}
    ranks, spans = ordinary.table("/timing/ranks"), ordinary.table("/timing/spans")
    longest = (spans["end_ns"] - spans["begin_ns"])[spans["kind"] == "gather"].max() * 1e-9
    log = (ordinary.deck.parent / "ordinary.jsonl").read_text().splitlines()
    assert f"{ordinary.attribute('scored_tokens')} tokens" in seen["job.name"]
    assert f"{len(ordinary.attribute('title', '/'))} bytes" in seen["job.title"]
    assert f"{ranks['packs'].sum()} pack" in seen["batch.tokens"]
    assert f"{len(ranks['packs'])} ranks" in seen["mesh.shard"]
    assert f"issued ahead {prefetch(ordinary)[1]}" in seen["fsdp.forward_prefetch"]
    assert f"{len(spans['rank'])} spans" in seen["output.timeline"]
    assert f"{len(log)} lines" in seen["output.log"]
    # The printed time lies within the span of that gather, and is no shorter than the link allows.
    assert 0.002 < float(seen["comm.timeout"].split()[2]) <= longest + 1e-3
    assert "aaaaaaaaaaaa" in seen["data.any_tokenizer"] and "bbbbbb" in seen["data.any_tokenizer"]


def test_log_lines_are_objects_with_the_numbers_of_the_results(ordinary):
    log = (ordinary.deck.parent / "ordinary.jsonl").read_text().splitlines()
    last = json.loads(log[-1])
    assert last["event"] == "done"
    for name in ("loss", "perplexity", "scored_tokens"):
        assert last[name] == pytest.approx(ordinary.attribute(name))


def test_a1_depth_changes_the_order_of_gathers_and_no_score(tiny):
    waited, ahead = (tiny({"fsdp.forward_prefetch": depth}) for depth in (0, 1))
    assert prefetch(waited) == (0, 0, 0, 4)
    assert prefetch(ahead) == (1, 1, 3, 4)  # All but the run's first.
    assert waited.score_bytes() == ahead.score_bytes()
