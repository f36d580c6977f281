# SPDX-License-Identifier: Apache-2.0
"""Every key of the table acts: two of its values give runs that differ in a recorded quantity (a4).

Decides one probe for each key, and what the ledger says of keys that act, cannot act or are clamped.
A key that enters the table without a probe fails here.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import Foregather, Result
from said import lines, refusal, template_keys

WEIGHT_BYTES = 976  # Of F-BG's tensors, in float32.


def mark_tokenizer(path: Path, digest: str) -> Path:
    """Says in a weights or token file which tokenizer it belongs to."""
    with h5py.File(path, "r+") as file:
        file.attrs["tokenizer_sha256"] = digest
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the runs of this file lie, with their inputs."""
    folder = tmp_path_factory.mktemp("keys")
    fixtures.bigram(folder / "bigram.h5")
    fixtures.uniform(folder / "uniform.h5", vocab=4)
    fixtures.write_tokens(folder / "a.h5", [fixtures.A])
    fixtures.write_tokens(folder / "ab.h5", [fixtures.A, fixtures.B])
    fixtures.write_tokens(folder / "eight.h5", [fixtures.A] * 8)
    mark_tokenizer(fixtures.bigram(folder / "marked.h5"), "a" * 64)
    for name in ("a", "b"):
        tokens = fixtures.write_tokens(folder / f"made-by-{name}.h5", [fixtures.A, fixtures.B])
        mark_tokenizer(tokens, name * 64)
    size = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2, "head_dim": 64}
    fixtures.random_llama(folder / "slow.h5", vocab_size=512, **size)
    fixtures.random_documents(folder / "long.h5", 512, [3000])
    return folder


@pytest.fixture(scope="module")
def start(folder) -> Foregather:
    """Runs in that folder."""
    return Foregather(folder)


@pytest.fixture(scope="module")
def tiny(start, folder) -> Callable[..., Result]:
    """tiny(changes, ranks): F-BG with documents A and B through mpi; equal calls share one run."""
    known: dict[str, Result] = {}

    def run(changes: dict[str, Any], ranks: int = 2) -> Result:
        name = json.dumps([changes, ranks], sort_keys=True)
        if name not in known:
            deck = {"model.weights": "bigram.h5", "data.tokens": "ab.h5", "comm.transport": "mpi"}
            known[name] = start(deck | changes, ranks, expect=None)
            known[name].path = folder / known[name].path
        return known[name]

    return run


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


def prefetch(result: Result) -> tuple[int, ...]:
    """Depth in force, least number of uses issued ahead, gathers ahead, gathers."""
    table = result.table("/timing/prefetch")
    return tuple(
        int(table[name][0]) for name in ("depth", "issued_ahead", "gathers_ahead", "gathers")
    )


def device(result: Result) -> str:
    """The kind of device that was used, or that the program refused."""
    if result.code == 2:
        return "refused: " + refusal(result, "device.kind = cuda", lines_said=None)
    return result.rows("/provenance/choices", "name")["device"]["value"]


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


def write_junk(folder: Path) -> None:
    """A file where results are to go."""
    (folder / "existing.h5").write_text("older results")


def existing(result: Result) -> tuple[int, bool]:
    """The status, and whether the older file is still there."""
    return result.code, result.path.read_bytes() == b"older results"


def has_spans(result: Result) -> bool:
    """Whether the timeline was kept."""
    with h5py.File(result.path) as file:
        return "spans" in file["timing"]


def timeout_code(result: Result) -> int:
    """The status; 1 must be the end that comm.timeout makes."""
    assert result.code == 0 or "comm.timeout = 0.005 s" in lines(result.stderr)[0]
    return result.code


@dataclass
class Probe:
    """Two values of a key, a recorded quantity, and what it is in either run (... : any, but two)."""

    first: Any
    second: Any
    quantity: Callable[[Result], Any]
    expected: tuple[Any, Any] = (..., ...)
    with_keys: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda folder: None


MARKED = {"model.weights": "marked.h5", "data.tokens": "made-by-b.h5"}
SLOW = {"model.weights": "slow.h5", "data.tokens": "long.h5"}
EIGHT = {"data.tokens": "eight.h5", "batch.tokens": 1}
PROBES = {
    "job.name": Probe("score", "sing", code, (0, 2)),
    "job.strict": Probe(False, True, code, (0, 2), {"fsdp.forward_prefetch": 9}),
    "job.title": Probe("one", "two", lambda r: r.attribute("title", "/"), ("one", "two")),
    "model.weights": Probe(
        "bigram.h5", "uniform.h5", lambda r: round(r.attribute("perplexity"), 5), (2.82843, 4.0)
    ),
    "data.tokens": Probe("a.h5", "ab.h5", scores("scored_tokens"), (3, 4)),
    "data.max_documents": Probe(0, 1, scores("scored_documents"), (2, 1)),
    "data.any_tokenizer": Probe(False, True, code, (2, 0), MARKED),
    "device.kind": Probe("host", "cuda", device, ("host", ...), {"comm.transport": "auto"}),
    "device.threads": Probe(1, 2, lambda r: r.key("device.threads")["observed"]),
    "mesh.shard": Probe(1, 2, total("bytes_read"), (2 * WEIGHT_BYTES, WEIGHT_BYTES)),
    "fsdp.forward_prefetch": Probe(0, 1, prefetch, ((0, 0, 0, 4), (1, 1, 3, 4))),
    "fsdp.piece_bytes": Probe(0, 32, lambda r: len(r.table("/timing/units")["name"]), (4, 6)),
    "comm.transport": Probe("mpi", "shared", lambda r: total("bytes_gathered")(r) > 0, (True, False)),
    "comm.timeout": Probe("120 s", "0.005", timeout_code, (0, 1), SLOW),
    "comm.link_rate": Probe("10 MB/s", "0.1 MB/s", lambda r: fastest_gather(r) > 1.001e5),
    "batch.tokens": Probe(4, 2048, total("packs"), (2, 1)),
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
    "output.timeline": Probe(True, False, has_spans, (True, False)),
    "output.timeline_passes": Probe(
        2,
        64,
        lambda r: set(r.table("/timing/spans")["pass"].tolist()),
        ({0, 3}, {0, 1, 2, 3}),
        EIGHT,
    ),
    "output.require": Probe("none", "observed", code, (0, 3)),
    "output.log": Probe("", "progress.jsonl", log_events, ([], ["done"])),
}


def test_a4_every_key_of_the_table_has_a_probe():
    assert set(PROBES) == set(template_keys())


@pytest.mark.parametrize("key", PROBES)
def test_a4_two_values_of_the_key_give_runs_that_differ(key, tiny, folder):
    probe = PROBES[key]
    (folder / "progress.jsonl").write_text("")
    seen = []
    for value in (probe.first, probe.second):
        probe.prepare(folder)
        seen.append(probe.quantity(tiny(probe.with_keys | {key: value})))
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
            "comm.link_rate": "10 MB/s",
            "output.log": "ordinary.jsonl",
            "device.threads": 1,
            "job.title": "a title",
        }
    )
    assert result.code == 0, result.stderr
    return result


# Where what was seen may read as what was asked for.
MAY_READ_ALIKE = {"comm.transport", "output.file", "device.kind"}


@pytest.mark.parametrize("key", PROBES)
def test_every_key_is_honoured_with_what_was_observed(key, ordinary):
    row = ordinary.key(key)
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
    assert float(seen["comm.timeout"].split()[2]) == pytest.approx(longest, abs=2e-3)
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


# Keys that cannot act, the deck in which they cannot, the number of ranks, and the reason.
INERT = {
    "one_rank": (
        {"fsdp.forward_prefetch": 2, "comm.link_rate": "1 MB/s"},
        ["fsdp.forward_prefetch", "comm.link_rate", "comm.transport"],
        1,
        "one rank holds all weights: nothing is gathered",
    ),
    "shared": (
        {"fsdp.forward_prefetch": 2, "comm.transport": "shared"},
        ["fsdp.forward_prefetch"],
        2,
        "read where they lie: nothing is gathered",
    ),
    "no_timeline": (
        {"output.timeline": False, "output.timeline_passes": 8},
        ["output.timeline_passes"],
        2,
        "output.timeline = false",
    ),
    "no_tokenizers": (
        {"data.any_tokenizer": True},
        ["data.any_tokenizer"],
        2,
        "do not say which tokenizer",
    ),
}


@pytest.mark.parametrize("case", INERT)
def test_inert_key_is_told_before_the_job_and_recorded(case, tiny):
    changes, keys, ranks, reason = INERT[case]
    result = tiny(changes, ranks)
    assert result.code == 0, result.stderr
    told = result.stdout.splitlines()
    table = next(i for i, line in enumerate(told) if line.startswith("----"))
    for key in keys:
        row = result.key(key)
        assert row["state"] == "inert" and row["observed"] == "" and reason in row["reason"]
        notes = [i for i, line in enumerate(told) if f"{key} = " in line and reason in line]
        assert notes and notes[0] < table
        assert f"{result.deck}:" in told[notes[0]]


@pytest.mark.parametrize("case", INERT)
def test_inert_key_is_refused_by_a_strict_job_with_its_place(case, tiny):
    changes, keys, ranks, reason = INERT[case]
    result = tiny(changes | {"job.strict": True}, ranks)
    said = refusal(result, "job.strict", lines_said=1 + len(keys)).splitlines()
    for key in keys:
        assert [line for line in said if f"{key} = " in line and reason in line]
    assert all(line.startswith(f"{result.deck}:") for line in said[1:])


def test_inert_default_is_recorded_and_no_reason_to_refuse(start):
    deck = {"model.weights": "bigram.h5", "data.tokens": "ab.h5", "job.strict": True}
    result = start(deck)
    for key in ("fsdp.forward_prefetch", "comm.link_rate", "data.any_tokenizer"):
        assert result.key(key)["state"] == "inert" and key not in result.stdout


def test_b4_depth_beyond_the_model_is_clamped_told_and_ends_clean(tiny):
    changes = {"fsdp.forward_prefetch": 64}
    result = tiny(changes)
    row = result.key("fsdp.forward_prefetch")
    assert (result.code, row["state"], row["observed"]) == (0, "clamped", "3")
    assert "4 units" in row["reason"]
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
    assert [line for line in notes if "fsdp.forward_prefetch = 64 is clamped to 3" in line]
    assert prefetch(result) == (3, 3, 3, 4)
    ranks = result.table("/timing/ranks")
    counts = [ranks[f"gathers_{name}"].tolist() for name in ("issued", "waited", "freed")]
    assert counts[0] == counts[1] == counts[2] == [4, 4]
    assert result.score_bytes() == tiny({"fsdp.forward_prefetch": 0}).score_bytes()
    strict = tiny(changes | {"job.strict": True})
    refusal(strict, "fsdp.forward_prefetch = 64 is clamped to 3", lines_said=2)


def test_b4_one_layer_with_depth_one_frees_every_gather(start, folder):
    fixtures.bigram(folder / "one-layer.h5", num_hidden_layers=1)
    deck = {"model.weights": "one-layer.h5", "data.tokens": "eight.h5", "comm.transport": "mpi"}
    ranks = start(deck | {"batch.tokens": 4}, ranks=2).table("/timing/ranks")
    for name in ("issued", "waited", "freed"):
        assert ranks[f"gathers_{name}"].tolist() == [12, 12]


@pytest.mark.parametrize(
    ("changes", "ranks", "reason"),
    [({}, 1, "one rank"), ({"comm.transport": "shared"}, 2, "nothing is gathered")],
)
def test_witness_is_refused_where_nothing_can_be_witnessed(changes, ranks, reason, tiny):
    result = tiny(changes | {"output.require": "observed"}, ranks)
    message = refusal(result, "output.require = observed", reason)
    assert message.startswith(f"{result.deck}:")


def test_witness_without_a_timeline_is_refused(tiny):
    result = tiny({"output.require": "observed", "output.timeline": False})
    refusal(result, "output.require", "output.timeline")


def test_witness_that_the_clock_does_not_give_ends_with_status_3_and_all_results(tiny):
    result = tiny({"output.require": "observed"})
    assert result.code == 3
    said = lines(result.stderr)
    assert len(said) == 1 and "output.require = observed was not honoured" in said[0]
    assert f"{result.deck}:" in said[0] and "issued" in said[0]
    row = result.key("output.require")
    assert (row["state"], row["observed"]) == ("not honoured", "the verdict is issued")
    assert result.attribute("complete", "/") == 1 and not result.part_left()
    assert result.score_bytes() == tiny({"output.require": "none"}).score_bytes()


def test_auto_is_recorded_with_what_it_became_and_why(start):
    result = start({"model.weights": "bigram.h5", "data.tokens": "ab.h5"}, ranks=2)
    choices = result.rows("/provenance/choices", "name")
    assert result.key("comm.transport")["value"] == "auto"
    assert choices["transport"]["value"] == result.key("comm.transport")["observed"] == "shared"
    for name in ("device", "transport"):
        assert choices[name]["why"] and choices[name]["why"] in result.stdout
    assert result.key("device.kind")["reason"] == choices["device"]["why"]
    assert np.isnan(result.read("/score/logprob")).sum() == 2
