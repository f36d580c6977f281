# SPDX-License-Identifier: Apache-2.0
"""Every key of the job train acts: two of its values give runs that differ in a recorded quantity
(a4).

Decides one probe for each key of that job, and what the ledger says of keys that act and of those
that are other jobs'. test_every_key.py sees to it that no key of the table is left out.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import Result
from said import template_keys
from test_every_key import (
    CORETYPE,
    MARKED,
    SLOW,
    WEIGHT_BYTES,
    Probe,
    code,
    device,
    environment,
    existing,
    fastest_gather,
    flushes,
    has_spans,
    log_events,
    offload_refused,
    products,
    timeout_code,
    total,
    write_junk,
)
from training import deck, step_file, steps_in, taken

RATE, STEPS = 0.01, 3


def column(name: str) -> Callable[[Result], list]:
    """A dataset of the results, rounded to what fp32 tells."""
    return lambda result: [round(value, 6) for value in result.read(name).tolist()]


last_loss = column("/train/loss")
rates = column("/train/learning_rate")
tokens = column("/train/tokens")


def direction(name: str) -> Callable[[Result], tuple[int, ...]]:
    """Depth in force, uses issued ahead, gathers of a direction."""

    def figures(result: Result) -> tuple[int, ...]:
        row = result.rows("/timing/prefetch", "direction")[name]
        return row["depth"], row["issued_ahead"], row["gathers"]

    return figures


def kept(folder: str) -> Callable[[Result], list[int]]:
    """The checkpoints in a folder beside the deck."""

    def steps(result: Result) -> list[int]:
        path = result.deck.parent / folder
        return steps_in(path) if path.exists() else []

    return steps


def anew(folder: str) -> Callable[[Path], None]:
    """Takes away what an earlier run kept there."""
    return lambda beside: shutil.rmtree(beside / folder, ignore_errors=True)


def with_first_step(folder: str) -> Callable[[Path], None]:
    """Leaves there the checkpoint of a run's first step."""

    def put(beside: Path) -> None:
        anew(folder)(beside)
        (beside / folder).mkdir()
        shutil.copy(step_file(beside / "first-step", 1), beside / folder)

    return put


def tf32_setting(result: Result) -> str:
    """What a resume is compared by."""
    with h5py.File(step_file(result.deck.parent / "kept-tf32", STEPS)) as file:
        (said,) = re.findall(r"^device\.tf32 = (.*)$", file["train/settings"][()].decode(), re.M)
    return said


def keep(name: str, **more: Any) -> dict[str, Any]:
    """Keys that write checkpoints to a folder of that name."""
    return {"checkpoint.directory": f"kept-{name}"} | {
        k.replace("__", "."): v for k, v in more.items()
    }


CONFIG = {"model.weights": "", "model.config": "small.json"}
EIGHT = {"data.tokens": "eight.h5"}
ONE_BY_ONE = EIGHT | {"train.batch_documents": 1, "train.shuffle": True}
EVALUATED = {"train.evaluate": "a.h5"}
GOES_ON = keep("goes-on", checkpoint__every=1)
DIFFER = (..., ...)
PROBES = {
    "job.name": Probe("train", "trane", code, (0, 2)),
    "job.strict": Probe(False, True, code, (0, 2), {"fsdp.forward_prefetch": 9}),
    "job.title": Probe("one", "two", lambda r: r.attribute("title", "/"), ("one", "two")),
    "job.max_time": Probe(0.001, 0, code, (75, 0), keep("in-no-time") | {"train.steps": 2}),
    "model.weights": Probe(
        "bigram.h5", "uniform.h5", lambda r: last_loss(r)[0], (1.039721, 1.386294)
    ),
    "model.config": Probe(
        "small.json",
        "wide.json",
        lambda r: r.key("model.config")["observed"].split(": ")[1],
        DIFFER,
        CONFIG,
    ),
    "model.init_seed": Probe(0, 1, last_loss, DIFFER, CONFIG),
    "data.tokens": Probe("a.h5", "ab.h5", tokens, ([3] * 3, [4] * 3)),
    "data.window": Probe(
        0, 3, lambda r: r.read("/train/items/window").tolist(), ([0, 0] * 3, [0, 1, 0] * 3)
    ),
    "data.max_documents": Probe(0, 1, tokens, ([4] * 3, [3] * 3)),
    "data.any_tokenizer": Probe(False, True, code, (2, 0), MARKED),
    "device.kind": Probe("host", "cuda", device, ("host", ...), {"comm.transport": "auto"}),
    "device.threads": Probe(1, 2, lambda r: r.key("device.threads")["observed"]),
    "device.products": Probe("onednn", "openblas", products, ("oneDNN", "OpenBLAS")),
    "device.tf32": Probe(
        False, True, tf32_setting, ("false", "true"), keep("tf32"), anew("kept-tf32")
    ),
    "mesh.shard": Probe(1, 2, total("bytes_read"), (2 * WEIGHT_BYTES, WEIGHT_BYTES)),
    "fsdp.forward_prefetch": Probe(0, 1, direction("forward"), ((0, 0, 12), (1, 1, 12))),
    "fsdp.backward_prefetch": Probe(0, 1, direction("backward"), ((0, 0, 3), (1, 1, 3))),
    "fsdp.reshard_after_forward": Probe(True, False, lambda r: direction("backward")(r)[2], (3, 0)),
    "fsdp.param_dtype": Probe(
        "fp32", "bf16", lambda r: int(r.table("/timing/units")["bytes"].sum())
    ),
    "fsdp.reduce_dtype": Probe("fp32", "bf16", total("bytes_reduced")),
    "fsdp.piece_bytes": Probe(0, 32, lambda r: len(r.table("/timing/units")["name"]), (4, 6)),
    "fsdp.gather_memory": Probe(
        0, "5 KiB", lambda r: int(r.table("/timing/prefetch")["slots"][0]), (2, 1)
    ),
    "fsdp.offload": Probe("none", "params", offload_refused("training keeps weights"), (0, 2)),
    "comm.transport": Probe(
        "mpi", "shared", lambda r: total("bytes_gathered")(r) > 0, (True, False)
    ),
    "comm.timeout": Probe("120 s", "0.001", timeout_code, (0, 1), SLOW),
    "comm.link_rate": Probe(
        "10 MB/s", "0.1 MB/s", lambda r: fastest_gather(r) > 1.001e5, (True, False)
    ),
    "batch.tokens": Probe(4, 2048, total("packs"), (24, 6), EIGHT | {"train.batch_documents": 8}),
    "train.steps": Probe(1, 2, lambda r: r.read("/train/step").tolist(), ([1], [1, 2])),
    "train.learning_rate": Probe(RATE, 0.02, rates, ([RATE] * 3, [0.02] * 3)),
    "train.schedule": Probe("constant", "linear", lambda r: rates(r)[-1], (RATE, 0.003333)),
    "train.warmup_steps": Probe(0, 2, rates, ([RATE] * 3, [0.005, RATE, RATE])),
    "train.min_learning_rate": Probe(
        0, 0.007, lambda r: rates(r)[-1], (0.003333, 0.008), {"train.schedule": "linear"}
    ),
    "train.beta1": Probe(0.9, 0.5, last_loss),
    "train.beta2": Probe(0.95, 0.5, last_loss),
    "train.epsilon": Probe(1e-8, 1e-2, last_loss),
    "train.weight_decay": Probe(0.1, 10, last_loss),
    "train.decay": Probe("matrices", "all", last_loss, DIFFER, {"train.weight_decay": 10}),
    "train.gradient_clip_norm": Probe(0, 0.1, last_loss, DIFFER, {"train.epsilon": 1e-2}),
    "train.accumulate": Probe(
        1, 2, lambda r: taken(r)[0], ([0, 1], [0, 1, 2, 3]), EIGHT | {"batch.tokens": 4}
    ),
    "train.batch_documents": Probe(0, 1, lambda r: taken(r)[0], ([0, 1], [0])),
    "train.recompute": Probe("layer", "none", total("device_bytes")),
    "train.seed": Probe(0, 1, taken, DIFFER, ONE_BY_ONE),
    "train.shuffle": Probe(False, True, taken, ([[0], [1], [2]], ...), ONE_BY_ONE),
    "train.max_bad_steps": Probe(
        1, 2, lambda r: (r.read("/train/step") > 0).sum(), (1, 2), {"model.weights": "sick.h5"}
    ),
    "train.evaluate": Probe("", "a.h5", lambda r: r.read("/evaluation/tokens").tolist(), ([], [3])),
    "train.evaluate_every": Probe(
        0, 1, lambda r: r.read("/evaluation/step").tolist(), ([3], [1, 2, 3]), EVALUATED
    ),
    "checkpoint.directory": Probe("", "kept-here", kept("kept-here"), ([], [3])),
    "checkpoint.every": Probe(
        0, 1, kept("kept-every"), ([3], [1, 2, 3]), keep("every"), anew("kept-every")
    ),
    "checkpoint.keep": Probe(
        0,
        1,
        kept("kept-keep"),
        ([1, 2, 3], [3]),
        keep("keep", checkpoint__every=1),
        anew("kept-keep"),
    ),
    "checkpoint.resume": Probe(
        "auto", "none", code, (0, 2), GOES_ON, with_first_step("kept-goes-on")
    ),
    "checkpoint.load_optimizer": Probe(
        True, False, last_loss, DIFFER, GOES_ON, with_first_step("kept-goes-on")
    ),
    "output.file": Probe(
        "one-t.h5", "two-t.h5", lambda r: r.path.exists() and r.path.name, ("one-t.h5", "two-t.h5")
    ),
    "output.existing": Probe(
        "refuse",
        "replace",
        existing,
        ((2, True), (0, False)),
        {"output.file": "existing-t.h5"},
        lambda f: write_junk(f, "existing-t.h5"),
    ),
    "output.flush_every": Probe(
        "30 s", 0.001, lambda r: flushes(r) > 0, (False, True), {"comm.link_rate": "0.1 MB/s"}
    ),
    "output.timeline": Probe(True, False, has_spans, (True, False)),
    "output.timeline_passes": Probe(
        2, 64, lambda r: sorted(set(r.table("/timing/spans")["pass"].tolist())), ([0, 2], [0, 1, 2])
    ),
    "output.require": Probe("none", "observed", code, (0, 3)),
    "output.environment": Probe(
        "warn", "strict", environment, (0, 2), {"device.products": "openblas"}, env=CORETYPE
    ),
    "output.log": Probe("", "progress.jsonl", log_events, ([], ["step"] * 3 + ["done"])),
}


@pytest.fixture(scope="module")
def inputs(folder, start) -> Path:
    """The shared folder with what training needs besides."""
    for name, width in (("small", 4), ("wide", 8)):
        config = fixtures.llama_config(hidden_size=width, head_dim=2)
        (folder / f"{name}.json").write_text(json.dumps(config))
    config = fixtures.llama_config()
    arrays = fixtures.bigram_arrays(config)
    arrays["model.embed_tokens.weight"][0, 0] = np.nan
    fixtures.write_model(folder / "sick.h5", config, arrays)
    first = {"train.steps": 1, "checkpoint.directory": "first-step"}
    start(ordinary_deck() | first, ranks=2)
    return folder


def ordinary_deck() -> dict[str, Any]:
    """Three steps of F-BG with A and B through mpi."""
    changes = {"train.steps": STEPS, "train.learning_rate": RATE, "comm.transport": "mpi"}
    return deck(Path("bigram.h5"), Path("ab.h5")) | changes


@pytest.fixture(scope="module")
def train(inputs, start):
    """train(changes): such a run of two ranks; equal calls that keep nothing share one."""
    known: dict[str, Result] = {}

    def run(changes: dict[str, Any], env: dict[str, str] | None = None) -> Result:
        asked = ordinary_deck() | changes
        name = json.dumps([asked, env or {}], sort_keys=True, default=str)
        if name not in known or "checkpoint.directory" in asked:
            known[name] = start(asked, ranks=2, env=env, expect=None)
            known[name].path = inputs / known[name].path
        return known[name]

    return run


@pytest.mark.parametrize("key", PROBES)
def test_a4_two_values_of_the_key_give_training_runs_that_differ(key, train, inputs):
    probe = PROBES[key]
    (inputs / "progress.jsonl").write_text("")
    seen = []
    for value in (probe.first, probe.second):
        probe.prepare(inputs)
        seen.append(probe.quantity(train(probe.with_keys | {key: value}, env=probe.env)))
    assert seen[0] != seen[1]
    for found, wanted in zip(seen, probe.expected):
        assert wanted is ... or found == wanted


@pytest.fixture(scope="module")
def ordinary(train, inputs) -> Result:
    """A run in which every key can act; config and init_seed have weights beside them."""
    with_first_step("kept-ordinary")(inputs)
    with h5py.File(inputs / "made-by-a.h5", "a") as file:
        del file.attrs["tokenizer_sha256"]
    result = train(
        {
            "job.title": "a title",
            "data.window": 2000,
            "train.evaluate": "a.h5",
            "train.evaluate_every": 1,
            "device.threads": 1,
            "comm.link_rate": "1 MB/s",
            "output.log": "ordinary-t.jsonl",
            "checkpoint.directory": "kept-ordinary-new",
            "train.shuffle": True,
            "train.schedule": "linear",
        }
    )
    assert result.code == 0, result.stderr
    return result


# Keys that cannot act in that run, and words of why.
INERT = {
    "device.tf32": "device.kind = host",
    "model.init_seed": "nothing is random",
    "data.any_tokenizer": "do not say which tokenizer",
}
MAY_READ_ALIKE = {"comm.transport", "output.file", "device.kind"}


@pytest.mark.parametrize("key", PROBES)
def test_every_key_of_training_is_honoured_with_what_was_observed(key, ordinary):
    row = ordinary.key(key)
    if key in INERT:
        assert row["state"] == "inert" and INERT[key] in row["reason"], row
        return
    assert row["state"] == "honoured" and row["observed"], row
    assert key in MAY_READ_ALIKE or row["observed"] != row["value"]


def test_a7_key_of_another_job_is_inert_in_training_or_refused_where_that_is_asked_for(train):
    others = sorted(set(template_keys("score")) - set(template_keys("train")))
    result = train({"score.top_k": 2})
    assert result.code == 0 and len(others) == 6
    for key in others:
        row = result.key(key)
        assert (row["state"], row["reason"]) == ("inert", "key of job score"), row
    told = result.stdout.index("score.top_k")
    assert told < result.stdout.index("step 1/3")  # Before any work.
    strict = train({"score.top_k": 2, "job.strict": True})
    assert strict.code == 2 and "score.top_k" in strict.stderr and not strict.path.exists()
