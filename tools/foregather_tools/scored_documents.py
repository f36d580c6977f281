# SPDX-License-Identifier: Apache-2.0
"""Brings a token file and the results of its run together: every document's scored tokens.

Decides whether results belong to a token file and hold all that is asked of them; what is made of
the figures is decided by the caller.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .command_line import Refusal
from .results_file import columns, deck, open_results, text
from .token_reader import open_tokens


@dataclass(frozen=True)
class ScoredDocuments:
    """N tokens of D documents, as they were scored. `begins` and `ends` [D] bound the scored tokens
    of each document (equal: none); logprob and entropy are in nat at `temperature`, NaN where not
    computed. entropy[t] is that of the distribution predicted after token t, None if it was not
    asked for. `request` [D] is the request that each document belongs to, None if the file was not
    packed from requests.
    """

    ids: list[str]
    offsets: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    tokens: np.ndarray
    logprob: np.ndarray
    greedy: np.ndarray
    entropy: np.ndarray | None
    temperature: float
    window: int
    request: np.ndarray | None
    attributes: dict[str, str]

    def scored(self) -> np.ndarray:
        """Indices of all scored tokens, document by document."""
        spans = [np.arange(begin, end) for begin, end in zip(self.begins, self.ends)]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)


def read_scored_documents(tokens: Path, results: Path) -> ScoredDocuments:
    """Reads both files whole. Refused: files that do not belong together, and results in which a
    token that was to be scored has no finite log-probability.
    """
    parts = _read_tokens(tokens)
    with open_results(results) as file:
        _check_same(tokens, results, file, parts["offsets"])
        score = file["score"]
        keys = deck(file)
        documents = ScoredDocuments(
            **parts,
            logprob=score["logprob"][()],
            greedy=score["greedy"][()],
            entropy=score["entropy"][()] if "entropy" in score else None,
            # A program without these keys knows but one temperature and no windows.
            temperature=float(keys.get("score.temperature", 1)),
            window=int(keys.get("data.window", 0)),
        )
    scored = documents.scored()
    bad = scored[~np.isfinite(documents.logprob[scored])]
    if bad.size:
        document = int(np.searchsorted(documents.ends, bad[0], "right"))
        raise Refusal(
            f"{results} has no finite log-probability for {bad.size} of {scored.size} tokens to be "
            f"scored, first in document {document} ({documents.ids[document]}): see "
            "/score/document_status, and score every document (data.max_documents = 0)"
        )
    return documents


def file_sha256(file: Path) -> str:
    """The digest of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_tokens(path: Path) -> dict:
    """What a token file says, as fields of ScoredDocuments."""
    with open_tokens(path) as file:
        offsets = file["offsets"][()].astype(np.int64)
        count = len(offsets) - 1
        start = file["score_from"][()] if "score_from" in file else np.ones(count, np.int64)
        names = map(text, file["id"][()]) if "id" in file else map(str, range(count))
        return {
            "ids": list(names),
            "offsets": offsets,
            "begins": np.minimum(offsets[:-1] + np.maximum(start, 1), offsets[1:]),
            "ends": offsets[1:],
            "tokens": file["tokens"][()],
            "request": file["request"][()] if "request" in file else None,
            "attributes": {
                name: text(value)
                for name, value in file.attrs.items()
                if isinstance(value, bytes | str)
            },
        }


def _check_same(tokens: Path, results: Path, file: h5py.File, offsets: np.ndarray) -> None:
    """Refuses results of another token file: other documents, or another content."""
    run = deck(file).get("data.tokens", "another file")
    remedy = f"it was made from {run}: give the token file that was scored, as it was then"
    if not np.array_equal(file["score/offsets"][()], offsets):
        raise Refusal(f"{results} holds other documents than {tokens}: {remedy}")
    digest = file_sha256(tokens)
    if digest not in columns(file["provenance/inputs"])["sha256"]:
        raise Refusal(f"{results} is not of this {tokens}, whose sha256 is {digest}: {remedy}")
