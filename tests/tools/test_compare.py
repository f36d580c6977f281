# SPDX-License-Identifier: Apache-2.0
"""compare tells what changed between two results files, and fails past the limits it is given.

Decides what counts as a change and where each limit lies; the program's own files are compared by
its own tests.
"""

import json

import h5py
import numpy as np
import pytest
from compared_pairs import entry, loss, put, training_pair
from results_files import fixed


def test_equal_scores_are_within_every_limit_whatever_the_run_was(tool, pair):
    limits = ("--same-score", "--max-logprob-difference", "0", "--max-loss-difference", "0")
    limits += ("--max-greedy-flips", "0")
    said = tool("compare", *pair(depth=0, exposed=9.0, run=90.0), *limits)
    assert said.status == 0 and said.err == ""
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "/score/logprob 8 0 0 same bytes" in lines
    assert "exposed, forward, s 1 9 +8 +800.0 %" in lines
    assert "run, s 10 90 +80 +800.0 %" in lines and "step, s 5 45 +40 +800.0 %" in lines
    assert "memory, peak resident, MiB 300 300 same" in lines
    assert "verdict, forward observed observed" in lines and "fsdp.forward_prefetch 1 0" in lines
    assert not any(line.startswith("job.name") for line in lines)


def test_largest_difference_is_told_with_its_place(tool, pair):
    files = pair(entry("score/logprob", 6, -1.25))
    said = tool("compare", *files, "--max-logprob-difference", "0.3")
    assert said.status == 0
    assert "/score/logprob 8 1 0.25 at 6" in [" ".join(x.split()) for x in said.out.splitlines()]
    said = tool("compare", *files, "--max-logprob-difference", "0.2")
    assert said.status == 1 and "0.25 nat at token 6" in said.err
    assert tool("compare", *files, "--same-score").status == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("score/logprob", np.zeros(9, "f4")), "/score/logprob: shape 8 became 9"),
        (put("score/logprob", np.zeros((8, 1), "f4")), "shape 8 became 8 x 1"),
        (put("score/logprob", np.zeros(8, "i4")), "floats became integers"),
        (put("score/greedy", None), "/score/greedy: only in A"),
        (put("score/entropy", np.zeros(8, "f4")), "/score/entropy: only in B"),
        (entry("score/offsets", 1, 2), "/score/offsets: 1 entries differ"),
        (entry("score/logprob", 1, np.nan), "1 entries are a number in one file only"),
        (entry("score/logprob", 0, -9.0), "1 entries are a number in one file only"),
        (entry("score/logprob", 1, -np.inf), "1 entries are a number in one file only"),
    ],
)
def test_other_shapes_documents_and_tokens_are_past_the_limit_by_default(
    tool, pair, change, message
):
    said = tool("compare", *pair(change))
    assert said.status == 1 and message in said.err and said.out != ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (entry("score/greedy", 2, 1), "/score/greedy has other bytes"),
        (put("score/id", fixed(["a", "b", "d"])), "/score/id has other bytes"),
        (entry("score/logprob", 4, -np.float32(np.nan)), "/score/logprob has other bytes"),
        (put("score/document_nll", np.array([4, 0, 4.5], "f4")), "document_nll has other bytes"),
        (lambda file: file["score"].attrs.modify("loss", 1.7 + 1e-15), "attribute loss differs"),
        (lambda file: file["score"].attrs.create("bits_per_byte", 1.0), "attribute bits_per_byte"),
    ],
)
def test_same_score_means_the_same_bytes(tool, pair, change, message):
    files = pair(change)
    said = tool("compare", *files, "--same-score")
    assert said.status == 1 and message in said.err
    assert tool("compare", *files).status == 0


def test_arrays_are_compared_in_pieces(tool, pair, monkeypatch):
    monkeypatch.setattr("foregather_tools.array_changes.PIECE_ELEMENTS", 3)
    wide = np.arange(16, dtype="f4").reshape(8, 2)
    other = wide.copy()
    other[5, 1] += 0.5
    one, two = pair(put("score/hidden", other))
    with h5py.File(one, "r+") as file:
        file["score/hidden"] = wide
    said = tool("compare", one, two, "--json")
    found = {entry["name"]: entry for entry in json.loads(said.out)["arrays"]}["/score/hidden"]
    assert found["largest"] == 0.5 and found["at"] == [5, 1] and found["differ"] == 1


@pytest.mark.parametrize(
    ("change", "b", "words", "message"),
    [
        (loss(1.71), {}, ("--max-loss-difference", "0.009"), "changed by +0.01 nat"),
        (loss(1.69), {}, ("--max-loss-difference", "0.009"), "changed by -0.01 nat"),
        (entry("score/greedy", 1, 0), {}, ("--max-greedy-flips", "0"), "1 flips"),
        (None, {"exposed": 1.16}, ("--max-exposed-increase", "10"), "exposed, forward grew from 1"),
        (None, {"run": 11.06}, ("--max-time-increase", "10"), "run grew from 10 to 11.06 s"),
        (None, {"peak": 350 * 2**20}, ("--max-memory-increase", "5"), "memory, peak resident grew"),
    ],
)
def test_each_limit_is_named_where_it_is_passed(tool, pair, change, b, words, message):
    files = pair(change or (lambda file: None), **b)
    said = tool("compare", *files, *words)
    assert said.status == 1 and words[0] in said.err and message in said.err
    assert "past 1 limit:" in said.err and tool("compare", *files).status == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_loss_that_is_not_a_number_is_past_the_limit_by_default(tool, pair, value):
    files = pair(loss(value))
    said = tool("compare", *files)
    assert said.status == 1 and f"loss: {value:g} in B is not a number" in said.err
    assert "past 1 limit:" in said.err
    with h5py.File(files[0], "r+") as file:
        loss(value)(file)
    said = tool("compare", *files, "--max-loss-difference", "9")
    assert said.status == 1 and all(f" in {name} is not a number" in said.err for name in "AB")
    assert "--max-loss-difference 9: a loss is not a number" in said.err
    assert "+nan" not in said.out + said.err


def test_loss_of_a_step_that_is_not_a_number_is_past_the_limit_by_default(tool, pair):
    files = pair(put("train/loss", np.array([3.0, np.nan])))
    with h5py.File(files[0], "r+") as file:
        file["train/loss"] = np.array([3.0, np.nan])
    said = tool("compare", *files)
    assert said.status == 1 and "/train/loss: 1 entries in B are not a number, first 1" in said.err


def starts(*packs):
    """A change: the starts of the run, with the packs that were in the file before each."""

    def change(file):
        table = {"started": fixed(["2026-01-01T00:00:00Z"] * len(packs))}
        table |= {"ranks": [2] * len(packs), "packs_before": packs}
        for name, values in table.items():
            file[f"provenance/runs/{name}"] = values

    return change


def test_times_of_a_resumed_run_are_told_and_not_judged_but_past_the_limit(tool, pair):
    files = pair(starts(0, 3))
    note = "B was resumed: its times cover part of the work"
    said = tool("compare", *files, "--max-memory-increase", "50")
    assert said.status == 0 and note in said.out.splitlines()
    assert json.loads(tool("compare", *files, "--json").out)["notes"] == [note]
    for option in ("--max-time-increase", "--max-exposed-increase"):
        said = tool("compare", *files, option, "50")
        assert said.status == 1 and f"{option} 50: {note}" in said.err
        assert "past 1 limit:" in said.err
    said = tool("compare", *reversed(files), "--max-time-increase", "50")
    assert said.status == 1 and "A was resumed" in said.err and "B was" not in said.err


@pytest.mark.parametrize("packs", [(0,), (0, 0)])
def test_run_that_began_anew_is_no_resumed_one(tool, pair, packs):
    said = tool("compare", *pair(starts(*packs)), "--max-time-increase", "50")
    assert said.status == 0 and "resumed" not in said.out


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ({"exposed": 1.14}, ("--max-exposed-increase", "10")),
        ({"exposed": 0.1}, ("--max-exposed-increase", "0")),
        ({"run": 11.04}, ("--max-time-increase", "10")),
        ({"peak": 330 * 2**20}, ("--max-memory-increase", "5")),
    ],
)
def test_slack_keeps_noise_within_the_limits(tool, pair, b, words):
    assert tool("compare", *pair(**b), *words).status == 0


def test_no_exposed_time_before_and_noise_after_is_within_the_limit(tool, pair):
    files = pair(a={"exposed": 0.0}, exposed=0.04)
    assert tool("compare", *files, "--max-exposed-increase", "0").status == 0
    said = tool("compare", *files, "--max-exposed-increase", "0", "--slack-seconds", "0.01")
    assert said.status == 1


def test_runs_without_exposed_time_are_within_its_limit(tool, pair):
    files = pair(a={"exposed": 0.0}, exposed=0.0)
    assert tool("compare", *files, "--max-exposed-increase", "0").status == 0


def test_times_of_other_work_are_not_judged_but_past_the_limit(tool, pair):
    files = pair(entry("timing/ranks/tokens", 0, 400))
    said = tool("compare", *files, "--max-time-increase", "50")
    assert said.status == 1 and "computed other tokens" in said.err
    assert tool("compare", *files, "--max-memory-increase", "50").status == 0


def test_limits_on_what_the_files_do_not_have_are_past(tool, pair):
    def no_timing(file):
        del file["timing/prefetch"], file["score/greedy"]

    files = pair(no_timing)
    with h5py.File(files[0], "r+") as file:
        no_timing(file)
    assert tool("compare", *files).status == 0
    words = ("--max-exposed-increase", "--max-greedy-flips")
    said = tool("compare", *files, *(word for name in words for word in (name, "5")))
    assert said.status == 1 and all(name in said.err for name in words)


def test_every_limit_passed_is_named(tool, pair):
    files = pair(entry("score/logprob", 1, 0.0), run=50.0)
    said = tool("compare", *files, "--max-logprob-difference", "1", "--max-time-increase", "10")
    assert said.status == 1 and "past 2 limits:" in said.err and said.err.count("\n  --max") == 2


def test_losses_of_a_training_are_compared(tool, pair):
    files = pair(put("train/loss", np.array([3.0, 2.0])))
    with h5py.File(files[0], "r+") as file:
        file["train/loss"] = np.array([3.0, 2.5])
    said = tool("compare", *files, "--max-loss-difference", "0.6")
    assert said.status == 0 and "/train/loss" in said.out
    assert tool("compare", *files, "--max-loss-difference", "0.4").status == 1


def test_json_tells_the_same_as_the_tables(tool, pair):
    files = pair(loss(np.nan), depth=0, run=20.0)
    said = tool("compare", *files, "--json", "--max-time-increase", "10")
    assert said.status == 1
    facts = json.loads(said.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    figures = {figure["name"]: figure for figure in facts["figures"]}
    assert figures["run"] == {"name": "run", "unit": "s", "a": 10.0, "b": 20.0}
    assert figures["loss"]["a"] == 1.7 and figures["loss"]["b"] is None
    assert facts["words"]["fsdp.forward_prefetch"] == ["1", "0"]
    assert facts["within_limits"] is False and "run grew" in facts["past_limits"][-1]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(b"no HDF5"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "cannot be read"),
    ],
)
def test_file_that_cannot_be_read_is_status_2(tool, pair, spoil, message):
    one, two = pair()
    spoil(two)
    said = tool("compare", one, two)
    assert said.status == 2 and str(two) in said.err and message in said.err and said.out == ""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("complete", 0, "is not complete"),
        ("format", np.bytes_(b"foregather.weights"), "is no results file"),
        ("format_version", 2, "format_version 2"),
    ],
)
def test_other_files_are_status_2(tool, pair, name, value, message):
    said = tool("compare", *pair(lambda file: file.attrs.__setitem__(name, value)))
    assert said.status == 2 and message in said.err


@pytest.mark.parametrize("words", [("--max-time-increase", "-1"), ("--slack-mib", "nan")])
def test_limits_are_numbers_above_zero(pair, words):
    from foregather_tools import compare

    with pytest.raises(SystemExit) as ended:
        compare.main([*map(str, pair()), *words])
    assert ended.value.code == 2


def test_training_runs_are_compared_by_steps_items_and_evaluations(tool, tmp_path):
    files = training_pair(tmp_path, put("timing/phases/seconds_mean", [8.0, 3.0]))
    said = tool("compare", *files, "--max-loss-difference", "0")
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    for name in ("train/loss", "train/gradient_norm", "train/items/document", "evaluation/loss"):
        assert any(line.startswith(f"/{name} ") and "same bytes" in line for line in lines), name
    assert "loss of the last step, nat 2.041241 2.041241 same" in lines
    assert "loss of the last evaluation, nat 3 3 same" in lines
    assert "step, s 1.5 1.5 same" in lines
    assert "exposed, reduce, s 1 3 +2 +200.0 %" in lines
    said = tool("compare", *files, "--max-exposed-increase", "50")
    assert said.status == 1 and "exposed, reduce grew from 1 to 3 s" in said.err


def test_other_items_of_a_step_are_told(tool, tmp_path):
    files = training_pair(tmp_path, entry("train/items/document", 2, 9))
    said = tool("compare", *files)
    assert said.status == 0
    (line,) = [line for line in said.out.splitlines() if line.startswith("/train/items/document")]
    assert line.split() == ["/train/items/document", "6", "1"]


def test_training_run_that_went_on_is_a_resumed_one(tool, tmp_path):
    def change(file):
        starts(0, 0)(file)
        file["provenance/runs/steps_before"] = [0, 4]

    said = tool("compare", *training_pair(tmp_path, change), "--max-time-increase", "50")
    assert said.status == 1 and "B was resumed" in said.err
