# SPDX-License-Identifier: Apache-2.0
"""The same bytes below /score, whoever computes them, in any threads, however weights move.

Decides which runs must agree; whether their numbers are right is asked elsewhere. Bytes are
compared, not values: a rounding that is lost in a tolerance fails here.
"""

import shutil
import subprocess
from pathlib import Path

import fixtures
import pytest
from run_foregather import NOT_COMPARED, Foregather, Result

# Large enough that products are cut into several blocks and threads share them.
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
}
LENGTHS = [1, 300, 17, 0, 2, 128, 64, 255, 33, 5, 211, 96, 3, 180, 77, 300, 1, 40, 150]
BATCH = 256  # Two documents are longer: each has a pack of its own.
TIED = {"tied": True, "untied": False}


def flags() -> set[str]:
    """What this processor can do."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


# The kind of product kernels whose bits depend most on how rows are cut, where it can run.
SENSITIVE = {"OPENBLAS_CORETYPE": "Haswell"} if "avx2" in flags() else {}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path]:
    """A tied and an untied model, and documents for both."""
    folder = tmp_path_factory.mktemp("bits")
    paths = {
        name: fixtures.random_llama(folder / f"{name}.h5", tie_word_embeddings=tied, **SHAPE)
        for name, tied in TIED.items()
    }
    tokens = fixtures.random_documents(folder / "tokens.h5", SHAPE["vocab_size"], LENGTHS)
    return paths | {"tokens": tokens}


@pytest.fixture(scope="module")
def score(inputs, tmp_path_factory):
    """score("tied", ranks, key=value...) runs once per call; two underscores stand for a dot."""
    runner = Foregather(tmp_path_factory.mktemp("runs"))

    def call(model: str, ranks: int, env: dict | None = None, **settings) -> Result:
        deck = {
            "model.weights": inputs[model],
            "data.tokens": inputs["tokens"],
            "batch.tokens": BATCH,
            "fsdp.piece_bytes": "200 KiB",
        }
        changes = {name.replace("__", "."): value for name, value in settings.items()}
        variables = SENSITIVE if env is None else env
        if variables:
            deck["device.products"] = "openblas"  # Whose variable it is.
        return runner(deck | changes, ranks, env=variables)

    return call


@pytest.fixture(scope="module")
def alone(score) -> dict[str, Result]:
    """What one rank with one thread finds: all others must find the same."""
    return {model: score(model, 1, device__threads=1) for model in TIED}


def same(found: Result, wanted: Result) -> None:
    """Every dataset and attribute below /score has the same bytes."""
    ours, theirs = found.score_bytes(), wanted.score_bytes()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def observed_transport(result: Result) -> str:
    """How weights moved."""
    return result.rows("/provenance/choices", "name")["transport"]["value"]


def test_threads_on_one_rank(score, alone):
    for model in TIED:
        same(score(model, 1, device__threads=2), alone[model])


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_weights_read_in_place(ranks, threads, score, alone):
    found = score("untied", ranks, comm__transport="shared", device__threads=threads)
    assert observed_transport(found) == "shared"
    same(found, alone["untied"])


@pytest.mark.parametrize("depth", (0, 1, 2))
@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_weights_gathered_at_any_depth(ranks, depth, score, alone):
    threads = 1 + (ranks + depth) % 2  # Each depth and each number of ranks meets both.
    found = score(
        "untied",
        ranks,
        comm__transport="mpi",
        fsdp__forward_prefetch=depth,
        device__threads=threads,
    )
    assert observed_transport(found) == "mpi"
    assert found.table("/timing/prefetch")["depth"].tolist() == [depth]
    same(found, alone["untied"])


@pytest.mark.parametrize("ranks, depth, threads", [(2, 2, 1), (3, 1, 2), (4, 0, 1)])
def test_tied_weights(ranks, depth, threads, score, alone):
    gathered = score(
        "tied",
        ranks,
        comm__transport="mpi",
        fsdp__forward_prefetch=depth,
        device__threads=threads,
    )
    same(gathered, alone["tied"])
    same(score("tied", ranks, comm__transport="shared"), alone["tied"])


@pytest.mark.parametrize("shard, transport", [(1, "none"), (2, "mpi"), (2, "shared"), (4, "mpi")])
def test_replicas_of_any_number(shard, transport, score, alone):
    asked = "auto" if transport == "none" else transport
    found = score("untied", 4, mesh__shard=shard, comm__transport=asked)
    assert observed_transport(found) == transport
    assert found.key("mesh.shard")["observed"].startswith(f"{shard} rank")
    same(found, alone["untied"])


def test_slow_link_changes_no_byte(score, alone):
    same(score("untied", 2, comm__link_rate="2 Gb/s"), alone["untied"])


KERNELS = {"Nehalem": "sse4_2", "Haswell": "avx2", "SkylakeX": "avx512vl"}


@pytest.mark.parametrize("core", [*KERNELS, "default"])
def test_one_kind_of_product_kernels_agrees_with_itself(core, score):
    named = core != "default"
    if named and KERNELS[core] not in flags():
        pytest.skip(f"this processor has no {KERNELS[core]}")
    env = {"OPENBLAS_CORETYPE": core if named else None}
    alone = score("untied", 1, env, device__threads=1)
    if named:
        chosen = alone.rows("/provenance/choices", "name")["products"]["value"]
        assert core in chosen.split(), chosen
        told = alone.rows("/provenance/environment", "name")
        assert told["OPENBLAS_CORETYPE"]["value"] == core
    same(score("untied", 3, env, device__threads=2, comm__transport="mpi"), alone)
    same(score("untied", 2, env, device__threads=1, comm__transport="shared"), alone)


@pytest.mark.parametrize("dtype", ("fp32", "bf16"))
@pytest.mark.parametrize("library", ("onednn", "openblas"))
def test_each_library_agrees_with_itself(library, dtype, score):
    choice = {"device__products": library, "fsdp__param_dtype": dtype}
    alone = score("untied", 1, {}, device__threads=1, **choice)
    same(score("untied", 3, {}, device__threads=2, comm__transport="mpi", **choice), alone)
    same(score("untied", 2, {}, device__threads=1, comm__transport="shared", **choice), alone)


def h5diff(a: Path, b: Path, *words: str) -> int:
    """h5diff's exit status: 0 equal, 1 different."""
    command = ["h5diff", *words, str(a), str(b)]
    return subprocess.run(command, capture_output=True, timeout=60).returncode


@pytest.mark.skipif(shutil.which("h5diff") is None, reason="h5diff is not installed")
def test_h5diff_finds_no_difference(score, alone):
    found = score("untied", 2, comm__transport="mpi")
    excluded = [word for group in NOT_COMPARED for word in ("--exclude-path", group)]
    assert h5diff(found.path, alone["untied"].path, *excluded) == 0
    assert h5diff(found.path, alone["untied"].path) == 1
    assert h5diff(found.path, alone["tied"].path, *excluded) == 1
