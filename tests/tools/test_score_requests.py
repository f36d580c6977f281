# SPDX-License-Identifier: Apache-2.0
"""What requests become as documents, what is read back from results, and which input is refused.

Decides everything that needs no run of the program; the answers of runs are tested with it.
"""

import fixtures
import h5py
import numpy as np
import pytest
import request_files as rf
from foregather_tools.request_windows import rolling_windows

# Windows that lm-evaluation-harness 0.4.13 makes (get_rolling_token_windows with a context of one,
# then make_disjoint_window) of the ids 0, 1, ... and the prefix -1: context, then what is scored.
ROLLING = {
    (10, 4): [([-1], [0, 1, 2, 3]), ([3], [4, 5, 6, 7]), ([5, 6, 7], [8, 9])],
    (7, 3): [([-1], [0, 1, 2]), ([2], [3, 4, 5]), ([3, 4, 5], [6])],
    (4, 4): [([-1], [0, 1, 2, 3])],
    (3, 1): [([-1], [0]), ([0], [1]), ([1], [2])],
    (1, 4): [([-1], [0])],
    (0, 4): [],
}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "b", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"b": {"id": "b", "ids": [2], "tokens": ["b"]}},
}


@pytest.fixture
def tokenizer(tmp_path):
    """The tokenizer of four ids as a file."""
    path = tmp_path / "tokenizer.json"
    path.write_text(rf.tokenizer_json())
    return path


def packed(tool, folder, requests, *words):
    """The token file that requests become."""
    lines = rf.write_lines(folder / "requests.jsonl", requests)
    done = tool("score_requests", "pack", lines, folder / "tokens.h5", "--replace", *words)
    assert done.status == 0, done.err
    return folder / "tokens.h5"


@pytest.mark.parametrize("tokens, length", ROLLING)
def test_rolling_windows_are_those_of_the_harness(tokens, length):
    windows = list(rolling_windows(range(tokens), -1, length))
    found = [(w.tokens[: w.score_from], w.tokens[w.score_from :]) for w in windows]
    assert found == ROLLING[tokens, length]


def test_pairs_are_split_as_the_harness_does(tool, tmp_path, tokenizer):
    pairs = [
        ("b ", "a"),
        ("b", " a"),
        ("", "ab"),
        ("", "ba"),
        (" ", "a"),
        ("ab", "bb"),
        ("b ", "b"),
    ]
    requests = [{"id": n, "context": c, "continuation": k} for n, (c, k) in enumerate(pairs)]
    words = ("--tokenizer", tokenizer, "--prefix-id", 2)
    assert rf.documents_of(packed(tool, tmp_path, requests, *words)) == [
        ([2, 3], 1),
        ([2, 3], 1),
        ([2, 1, 2], 1),
        ([2, 1], 1),
        ([2, 3], 1),
        ([1, 2, 2, 2], 2),
        ([2, 0, 2], 1),
    ]


def test_special_tokens_of_the_template_stand_before_a_context_alone(tool, tmp_path, tokenizer):
    tokenizer.write_text(rf.tokenizer_json(post_processor=TEMPLATE))
    pairs = [("a", "b"), ("", "a"), ("ba", "b")]
    requests = [{"id": n, "context": c, "continuation": k} for n, (c, k) in enumerate(pairs)]
    tokens = packed(tool, tmp_path, requests, "--tokenizer", tokenizer)
    assert rf.documents_of(tokens) == [([2, 1, 2], 2), ([2, 1], 1), ([2, 1, 2], 2)]
    other = packed(tool, tmp_path, requests[:2], "--tokenizer", tokenizer, "--prefix-id", 0)
    assert rf.documents_of(other) == [([2, 1, 2], 2), ([0, 1], 1)]
    words = ("--tokenizer", tokenizer, "--no-special-tokens")
    bare = rf.documents_of(packed(tool, tmp_path, requests, *words))
    assert bare == [([1, 2], 1), ([2, 1], 1), ([2, 1, 2], 2)]


def test_context_is_cut_from_its_beginning(tool, tmp_path):
    requests = [{"id": "x", "tokens": [0, 1, 2, 3, 0, 1], "score_from": 4}]
    lengths = {n: ("--vocab-size", 4, "--max-length", n) for n in (2, 3, 5)}
    found = {n: rf.documents_of(packed(tool, tmp_path, requests, *w)) for n, w in lengths.items()}
    whole = ([0, 1, 2, 3, 0, 1], 4)
    assert found == {2: [([3, 0, 1], 1)], 3: [([2, 3, 0, 1], 2)], 5: [whole]}


def test_windows_fill_the_positions_of_the_weights(tool, tmp_path):
    weights = rf.bigram_with_tokenizer(tmp_path / "w.h5", max_position_embeddings=5)
    requests = [{"id": "x", "text": "abababab"}]
    tokens = packed(tool, tmp_path, requests, "--weights", weights, "--rolling")
    assert [len(ids) for ids, _ in rf.documents_of(tokens)] == [5, 5]
    words = ("--weights", weights, "--max-length", 5, "--replace")
    lines = tmp_path / "requests.jsonl"
    done = tool("score_requests", "pack", lines, tmp_path / "tokens.h5", *words)
    assert done.status == 2 and "give at most 4" in done.err


PAIR = {"id": "x", "context": "a", "continuation": "b"}
BAD_LINES = {
    "not json": ("{", "is not JSON"),
    "no object": ([1], "holds no object"),
    "no id": ({"context": "a", "continuation": "b"}, "has no id"),
    "same id": ({"id": "first"} | {"context": "a", "continuation": "b"}, "is that of"),
    "empty": (PAIR | {"continuation": ""}, "continuation is empty"),
    "half": ({"id": "x", "context": "a"}, "does not hold what a request is made of"),
    "two ways": (PAIR | {"tokens": [1, 2], "score_from": 1}, "does not hold"),
    "other kind": ({"id": "x", "text": "a"}, "give --rolling"),
    "number": (PAIR | {"context": 3}, "context is no text"),
    "surrogate": (PAIR | {"context": "\ud800"}, "surrogate"),
    "long": (PAIR | {"continuation": "abababab"}, "raise --max-length"),
    "merged": ({"id": "x", "context": "b", "continuation": "\n"}, "no token of its own"),
    "start": ({"id": "x", "tokens": [1, 2], "score_from": 2}, "must be 1 to 1"),
    "one token": ({"id": "x", "tokens": [1], "score_from": 0}, "needs at least 2 tokens"),
    "no token": ({"id": "x", "tokens": [], "score_from": 1}, "needs at least 2 tokens"),
    "no start": ({"id": "x", "tokens": [1, 2, 3]}, "score_from is missing: give the first token"),
    "vocabulary": ({"id": "x", "tokens": [1, 4], "score_from": 1}, "ids are 0 to 3"),
    "truth": ({"id": "x", "tokens": [1, True], "score_from": 1}, "whole numbers"),
    "no prefix": (PAIR | {"context": ""}, "give --prefix-id"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_malformed_request_is_refused_with_its_line(tool, tmp_path, tokenizer, name):
    value, message = BAD_LINES[name]
    lines = rf.write_lines(tmp_path / "r.jsonl", [PAIR | {"id": "first"}, value])
    if name == "not json":
        lines.write_text(lines.read_text().replace('"{"', "{"))
    before = sorted(tmp_path.iterdir())
    words = ("--tokenizer", tokenizer, "--max-length", 6)
    done = tool("score_requests", "pack", lines, tmp_path / "t.h5", *words)
    assert done.status == 2 and f"{lines}:2" in done.err and message in done.err
    assert len(done.err.splitlines()) == 1 and sorted(tmp_path.iterdir()) == before


def test_requests_without_a_line_and_texts_without_a_tokenizer_are_refused(tool, tmp_path):
    lines, output = rf.write_lines(tmp_path / "r.jsonl", []), tmp_path / "t.h5"
    done = tool("score_requests", "pack", lines, output, "--vocab-size", 4)
    assert done.status == 2 and "holds no request" in done.err
    rf.write_lines(lines, [PAIR])
    done = tool("score_requests", "pack", lines, output, "--vocab-size", 4)
    assert done.status == 2 and f"{lines}:1 holds text" in done.err and not output.exists()


def test_rolling_requests_without_any_token_to_score_are_refused(tool, tmp_path):
    requests = [{"id": 0, "text": ""}, {"id": 1, "tokens": []}]
    lines, output = rf.write_lines(tmp_path / "r.jsonl", requests), tmp_path / "t.h5"
    weights = rf.bigram_with_tokenizer(tmp_path / "w.h5")
    words = ("score_requests", "pack", lines, output, "--rolling", "--weights", weights)
    before = sorted(tmp_path.iterdir())
    done = tool(*words)
    refusals = [line for line in done.err.splitlines() if "refused:" in line]
    assert done.status == 2 and len(refusals) == 1 and sorted(tmp_path.iterdir()) == before
    assert f"{lines} has no token to score: each of its 2 requests is empty" in refusals[0]
    rf.write_lines(lines, [*requests, {"id": 2, "text": "a"}])
    assert tool(*words).status == 0 and rf.documents_of(output) == [([rf.PREFIX, 1], 1)]


def test_weights_without_a_tokenizer_name_the_way_for_requests_of_tokens(tool, tmp_path):
    lines, output = rf.write_lines(tmp_path / "r.jsonl", IDS), tmp_path / "t.h5"
    fixtures.bigram(tmp_path / "w.h5")
    done = tool("score_requests", "pack", lines, output, "--weights", tmp_path / "w.h5")
    assert done.status == 2 and not output.exists() and len(done.err.splitlines()) == 1
    assert "if every request holds tokens, --vocab-size 4 in place of --weights" in done.err


IDS = [
    {"id": "é", "tokens": [1, 2, 3], "score_from": 1},
    {"id": 5, "tokens": [0, 2, 3, 0, 1], "score_from": 2},
]


@pytest.fixture
def scored(tool, tmp_path):
    """scored(**changes of write_scores) gives requests, tokens and results of IDS."""

    def make(**changes):
        tokens = packed(tool, tmp_path, IDS, "--vocab-size", 4)
        results = rf.write_scores(tmp_path / "results.h5", tokens, **changes)
        return tmp_path / "requests.jsonl", tokens, results

    return make


def test_answers_are_in_the_order_and_with_the_ids_of_the_requests(tool, tmp_path, scored):
    output = tmp_path / "answers.jsonl"
    assert tool("score_requests", "unpack", *scored(), output).status == 0
    answers = rf.read_lines(output)
    assert [(a["id"], a["tokens"], a["is_greedy"]) for a in answers] == [
        ("é", 2, True),
        (5, 3, True),
    ]
    expected = [rf.loglikelihood(request)["logprob"] for request in IDS]
    assert [answer["logprob"] for answer in answers] == pytest.approx(expected, rel=1e-6)


def spoil(kind, requests, tokens, results):
    """Makes one of the three files unfit for the others."""
    if kind == "requests changed":
        requests.write_text(requests.read_text() + "\n")
    elif kind == "tokens changed":
        with h5py.File(tokens, "r+") as file:
            file["tokens"][0] = 0
            del file.attrs["content_sha256"]
    elif kind == "not packed":
        with h5py.File(tokens, "r+") as file:
            del file["request"]
        rf.write_scores(results, tokens)
    else:
        with h5py.File(results, "r+") as file:
            if kind == "incomplete":
                file.attrs["complete"] = 0
            elif kind == "other documents":
                file["score/offsets"][1] = 2
            elif kind == "left out":
                file["score/logprob"][-1] = np.nan
            elif kind == "no results":
                file.attrs["format"] = np.bytes_(b"other")


@pytest.mark.parametrize(
    "kind, message",
    [
        ("requests changed", "changed since"),
        ("tokens changed", "whose sha256 is"),
        ("not packed", "was not made by `score_requests pack`"),
        ("incomplete", "is not complete"),
        ("other documents", "holds other documents"),
        ("left out", "1 of 5 tokens to be scored, first in document 1 (5)"),
        ("no results", "is no results file"),
    ],
)
def test_files_that_do_not_belong_together_give_no_answers(tool, tmp_path, scored, kind, message):
    files = scored()
    spoil(kind, *files)
    done = tool("score_requests", "unpack", *files, tmp_path / "answers.jsonl")
    assert done.status == 2 and message in done.err and len(done.err.splitlines()) == 1
    assert not list(tmp_path.glob("answers*"))


@pytest.mark.parametrize(
    "deck, message",
    [
        ({"score__temperature": "0.5"}, "temperature 0.5"),
        ({"data__window": "4"}, "in windows of 4 tokens"),
    ],
)
def test_scores_that_are_no_loglikelihoods_give_no_answers(tool, tmp_path, scored, deck, message):
    done = tool("score_requests", "unpack", *scored(**deck), tmp_path / "answers.jsonl")
    assert done.status == 2 and message in done.err and not list(tmp_path.glob("answers*"))


@pytest.mark.parametrize("name", ["batch.h5", "batch.npz"])
def test_responses_are_padded_rows_with_the_entropy_each_token_was_drawn_from(
    tool, tmp_path, scored, name
):
    _, tokens, results = scored(entropy=True, score__temperature="0.7")
    output = tmp_path / name
    assert tool("score_requests", "responses", results, tokens, output, "--entropies").status == 0
    if name.endswith(".npz"):
        batch = dict(np.load(output))
        ids = batch["ids"].tolist()
    else:
        with h5py.File(output) as file:
            batch = {key: file[key][()] for key in file}
        ids = [value.decode() for value in batch["ids"].tolist()]
    assert ids == ["é", "5"] and batch["temperature"] == 0.7
    assert batch["responses"].tolist() == [[2, 3, 0], [3, 0, 1]]
    assert batch["response_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["response_lengths"].tolist() == [2, 3]
    # Scored are tokens 1, 2 and 5, 6, 7 of the file; the entropy after token t is t + 0.5.
    assert batch["entropies"].tolist() == [[0.5, 1.5, 0], [4.5, 5.5, 6.5]]
    half = -np.log(np.float32(2))
    np.testing.assert_allclose(batch["logprobs"], [[half, half, 0], [half, half, half]], rtol=1e-6)


def test_responses_without_entropies_are_written_unless_these_are_asked_for(tool, tmp_path, scored):
    _, tokens, results = scored()
    words = ("score_requests", "responses", results, tokens)
    done = tool(*words, tmp_path / "a.npz", "--entropies")
    assert done.status == 2 and "score.entropy = true" in done.err
    done = tool(*words, tmp_path / "a.txt")
    assert done.status == 2 and "name it .h5 or .npz" in done.err
    assert not list(tmp_path.glob("a.*"))
    assert tool(*words, tmp_path / "a.npz").status == 0
    assert "entropies" not in np.load(tmp_path / "a.npz")


def test_any_scored_token_file_gives_responses(tool, tmp_path):
    documents = [[0, 1, 2], [], [3]]
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents, score_from=np.zeros(3, np.int64))
    results = rf.write_scores(tmp_path / "r.h5", tokens)
    output = tmp_path / "batch.npz"
    assert tool("score_requests", "responses", results, tokens, output).status == 0
    batch = np.load(output)
    assert batch["response_lengths"].tolist() == [2, 0, 0] and batch["ids"].tolist() == [*"012"]
