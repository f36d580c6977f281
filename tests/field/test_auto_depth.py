# SPDX-License-Identifier: Apache-2.0
"""Depths that are `auto`: measured before the run, chosen alike on all ranks, told, and repeatable.

Decides what a run does with them; which depth which times lead to is a unit test's.
"""

import fixtures
import numpy as np
import pytest
from run_foregather import Foregather
from said import bare, prefetch, refusal
from training import deck, state, step_file

AUTO = {"fsdp.forward_prefetch": "auto", "comm.link_rate": "1 MB/s"}
BOTH = AUTO | {"fsdp.backward_prefetch": "auto"}


def chosen(result) -> dict:
    """The row of /timing/choice that was taken, after checking that it follows from the others."""
    rows = result.table("/timing/choice")
    (taken,) = np.flatnonzero(rows["chosen"])
    step, exposed = rows["step_s"], rows["exposed_s"]
    hidden = (exposed < 0.02 * step) & (step <= 1.02 * step.min())
    assert taken == np.flatnonzero(hidden if hidden.any() else step <= 1.01 * step.min())[0]
    return {name: values[taken] for name, values in rows.items()}


def gathers_agree(result) -> None:
    """Every gather of every rank was waited for and given back, and all ranks issued as many."""
    ranks = result.table("/timing/ranks")
    counts = {tuple(ranks[f"gathers_{what}"]) for what in ("issued", "waited", "freed")}
    assert len(counts) == 1 and len(set(counts.pop())) == 1
    assert not ranks["allocations_while_running"].any()


@pytest.mark.parametrize("ranks", (2, 3))
def test_score_chooses_a_depth_that_all_ranks_run_at(ranks, tiny):
    result = tiny(AUTO, ranks)
    assert result.code == 0, result.stderr
    depth = chosen(result)["forward_depth"]
    assert prefetch(result)[:2] == (depth, depth)
    gathers_agree(result)
    assert result.table("/timing/prefetch")["slots"][0] == depth + 1
    row = result.key("fsdp.forward_prefetch")
    assert (row["value"], row["state"]) == ("auto", "honoured")
    assert row["observed"].startswith(f"depth {depth}: issued ahead")
    assert row["reason"].startswith(f"auto became {depth}: predicted exposure")
    alone = result.table("/timing/alone")
    assert list(alone["unit"][:2]) == ["embedding.0", "layer.0"]
    assert (alone["gather_s"] > 0).all() and (alone["compute_s"] > 0).all()
    told = [line for line in result.stdout.splitlines() if f"depth {depth} chosen (auto)" in line]
    assert len(told) == 2 and "measured in" in told[0]  # before the run, and in the table
    assert ("all units stay in their slots" in told[0]) == (depth == 3)  # of 4 units
    assert result.stdout.count("a depth of 0 to 3 will be chosen") == 2
    assert result.score_bytes() == tiny({"fsdp.forward_prefetch": 1}, ranks).score_bytes()


def test_score_is_repeated_by_the_effective_deck(tiny, start, folder):
    first = tiny(AUTO)
    depth = int(chosen(first)["forward_depth"])
    text = first.read("/provenance/deck_effective")
    assert f"\nforward_prefetch = {depth}  # " in text and ", given as auto\n" in text
    again = start(text, 2, ["--output.file=auto-again.h5"])
    again.path = folder / again.path
    assert prefetch(again)[0] == depth and again.key("fsdp.forward_prefetch")["value"] == str(depth)
    assert again.score_bytes() == first.score_bytes()


def test_no_depth_is_chosen_that_gather_memory_does_not_hold(tiny):
    free = tiny(AUTO)
    slot = int(free.table("/timing/prefetch")["slot_bytes"][0])
    assert max(free.table("/timing/choice")["forward_depth"]) == 3
    for slots in (1, 2):
        limited = tiny(AUTO | {"fsdp.gather_memory": (slots + 1) * slot - 1})
        assert list(limited.table("/timing/choice")["forward_depth"]) == list(range(slots))
        assert prefetch(limited)[0] == chosen(limited)["forward_depth"] < slots
        assert limited.key("fsdp.gather_memory")["state"] == "honoured"
        assert f"holds {slots} slot" in limited.stdout
        assert limited.score_bytes() == free.score_bytes()


@pytest.mark.parametrize("case", ((1, {}), (2, {"comm.transport": "shared"})))
def test_where_nothing_moves_auto_is_inert_and_becomes_0(case, tiny):
    ranks, changes = case
    result = tiny({"fsdp.forward_prefetch": "auto"} | changes, ranks)
    assert result.code == 0, result.stderr
    row = result.key("fsdp.forward_prefetch")
    assert row["state"] == "inert" and "nothing is gathered" in row["reason"]
    assert "forward_prefetch = auto is inert" in result.stdout and "chosen" not in result.stdout
    assert "\nforward_prefetch = 0  # " in result.read("/provenance/deck_effective")


def test_a_complete_run_is_resumed_by_doing_nothing(run, ab):
    first = run(ab | AUTO | {"comm.transport": "mpi"}, 2)
    again = run(ab | AUTO | {"comm.transport": "mpi", "output.existing": "resume"}, 2)
    assert again.code == 0 and first.score_bytes() == again.score_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained(name, changes): a training run of three steps of two passes, and its last state."""
    folder = tmp_path_factory.mktemp("auto")
    weights = fixtures.random_llama(folder / "w.h5", vocab_size=50, hidden_size=12, head_dim=6)
    tokens = fixtures.random_documents(folder / "t.h5", 50, [9, 30, 2, 17, 5, 21, 8, 8])
    asked = deck(weights, tokens, train__steps=3, train__accumulate=2, batch__tokens=16)

    job = Foregather(folder)

    def run(name: str, changes: dict):
        more = {"checkpoint.directory": folder / name, "comm.transport": "mpi"}
        result = job(asked | more | changes, 2)
        assert result.code == 0, result.stderr
        return result, state(step_file(folder / name, 3))

    return run


def test_training_measures_without_changing_weights_moments_or_position(trained):
    fixed, weights = trained("fixed", {})
    result, same = trained("auto", BOTH)
    assert same == weights
    assert list(result.read("/train/loss")) == list(fixed.read("/train/loss"))
    gathers_agree(result)
    taken = chosen(result)
    depths = result.rows("/timing/prefetch", "direction")
    text = result.read("/provenance/deck_effective")
    for direction in ("forward", "backward"):
        depth = taken[f"{direction}_depth"]
        assert depths[direction]["depth"] == depths[direction]["requested"] == depth
        row = result.key(f"fsdp.{direction}_prefetch")
        assert (row["value"], row["state"]) == ("auto", "honoured")
        assert row["reason"].startswith(f"auto became {depth}: ")
        assert f"\n{direction}_prefetch = {depth}  # " in text
        assert f"prefetch {direction} depth {depth} chosen (auto): predicted" in result.stdout
    alone = result.table("/timing/alone")
    backward = alone["direction"] == "backward"
    assert (alone["reduce_s"][backward] > 0).all() and not alone["reduce_s"][~backward].any()


def test_training_with_one_direction_fixed_or_weights_kept_chooses_the_other(trained):
    result, weights = trained("one", AUTO | {"fsdp.backward_prefetch": 2})
    assert set(result.table("/timing/choice")["backward_depth"]) == {2}
    assert result.key("fsdp.backward_prefetch")["value"] == "2"
    kept, same = trained("kept", BOTH | {"fsdp.reshard_after_forward": False})
    assert set(kept.table("/timing/choice")["backward_depth"]) == {0}
    assert kept.key("fsdp.backward_prefetch")["state"] == "inert"
    gathers_agree(kept)
    assert same == weights


def test_check_tells_the_depths_that_auto_may_become_and_the_memory_of_the_most(ab, tmp_path):
    for job, words in (("score", ""), ("train", "train.steps=1 train.learning_rate=0.1")):
        path = tmp_path / f"{job}.deck"
        lines = [f"[job]\nname = {job}", "[comm]\ntransport = mpi", "[output]\nfile = no.h5"]
        path.write_text("\n".join(lines) + "\n")
        given = [f"--{key}={value}" for key, value in ab.items()]
        given += [f"--{word}" for word in words.split()]
        said = bare("--check", str(path), "--ranks", "2", "--fsdp.forward_prefetch=auto", *given)
        assert said.returncode == 0, said.stderr
        assert "fsdp.forward_prefetch = auto: a depth of 0 to 3 will be chosen" in said.stdout
        assert "memory is planned for the largest" in said.stdout
        assert "4 x " in said.stdout  # slots


def test_what_is_neither_a_number_nor_auto_is_refused(run, ab):
    said = refusal(run(ab | {"fsdp.forward_prefetch": "automatic"}, 2, expect=None))
    assert 'takes auto or a whole number, 0 to 64, not "automatic"' in said
