# SPDX-License-Identifier: Apache-2.0
"""Requests for the bigram model F-BG: a tokenizer of its four ids, and what each request must cost.

Decides the answers by the published definitions alone, without the tools; each test decides its
requests.
"""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import fixtures
import h5py
import numpy as np

WORDS = {" ": 0, "a": 1, "b": 2, " a": 3}
PREFIX = 2
COST = {1: 1, 2: 2, 3: 3, 0: 3}  # ln 2 times this costs the id that is so far after the last one.


def tokenizer_json(**changes: Any) -> str:
    """Byte pairs with the one merge " " + "a": a blank before an "a" belongs to it."""
    model = {"type": "BPE", "vocab": WORDS, "merges": [[" ", "a"]]}
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    whole = {"version": "1.0", "added_tokens": [], "model": model} | dict.fromkeys(parts)
    return json.dumps(whole | {"decoder": {"type": "Fuse"}} | changes)


def bigram_with_tokenizer(path: Path, **changes: Any) -> Path:
    """F-BG as a weights file that holds the tokenizer."""
    fixtures.bigram(path, bos_token_id=PREFIX, **changes)
    with h5py.File(path, "r+") as file:
        file["tokenizer"] = np.bytes_(tokenizer_json().encode())
    return path


def ids_of(text: str) -> list[int]:
    """The tokens of a text, found without the tokenizer."""
    return [WORDS[word] for word in re.findall(" a| |a|b", text)]


def score(before: int, tokens: list[int]) -> dict[str, Any]:
    """What tokens after `before` cost, and whether each was the most likely one."""
    steps = [(token - last) % 4 for last, token in zip([before, *tokens], tokens)]
    return {
        "logprob": -math.log(2) * sum(COST[step] for step in steps),
        "is_greedy": all(step == 1 for step in steps),
        "tokens": len(steps),
    }


def loglikelihood(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, by definition."""
    if "tokens" in request:
        start = request["score_from"]
        context, continuation = request["tokens"][:start], request["tokens"][start:]
    elif request["context"]:
        bare = request["context"].rstrip()
        context = ids_of(bare)
        continuation = ids_of(request["context"] + request["continuation"])[len(context) :]
    else:
        context, continuation = [PREFIX], ids_of(request["continuation"])
        if continuation[0] == PREFIX:
            continuation = continuation[1:]
    return {"id": request["id"]} | score(context[-1], continuation)


def rolling(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a rolling request, by definition: of a bigram, windows change nothing."""
    text = request["text"]
    return {"id": request["id"]} | score(PREFIX, ids_of(text)) | {"bytes": len(text.encode())}


def write_lines(path: Path, values: list[Any]) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Any]:
    """The values of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def documents_of(path: Path) -> list[tuple[list[int], int]]:
    """The tokens and score_from of each document of a token file."""
    with h5py.File(path) as file:
        offsets, starts = file["offsets"][()], file["score_from"][()].tolist()
        parts = np.split(file["tokens"][()], offsets[1:-1])
    return [(part.tolist(), start) for part, start in zip(parts, starts)]


def write_scores(path: Path, tokens: Path, entropy: bool = False, **deck: str) -> Path:
    """Results of a token file as the program would write them, with the entropy t + 0.5 after
    token t. Words of `deck` are keys with __ for the point.
    """
    with h5py.File(tokens) as file:
        ids, offsets = file["tokens"][()].astype(int), file["offsets"][()]
        starts = file["score_from"][()] if "score_from" in file else np.ones(len(offsets) - 1, int)
    scored = np.zeros(len(ids), bool)
    for begin, end, start in zip(offsets, offsets[1:], starts):
        scored[begin + max(start, 1) : end] = True
    steps = np.diff(ids, prepend=0) % 4
    cost = np.array([COST[step] for step in steps.tolist()], "f4")
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_(b"foregather.results")
        file.attrs["format_version"] = 1
        file["score/logprob"] = np.where(scored, -np.float32(math.log(2)) * cost, np.nan)
        file["score/greedy"] = (scored & (steps == 1)).astype("u1")
        file["score/offsets"] = offsets
        if entropy:
            file["score/entropy"] = np.arange(len(ids), dtype="f4") + 0.5
        keys = {name.replace("__", "."): value for name, value in deck.items()}
        keys = {"data.tokens": str(tokens)} | keys
        file["provenance/deck/key"] = [name.encode() for name in keys]
        file["provenance/deck/value"] = [value.encode() for value in keys.values()]
        digest = hashlib.sha256(tokens.read_bytes()).hexdigest()
        file["provenance/inputs/sha256"] = [b"0" * 64, digest.encode()]
        file.attrs["complete"] = 1
    return path
