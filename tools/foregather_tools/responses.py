# SPDX-License-Identifier: Apache-2.0
"""A run's scores as a batch of responses, as trainers by reinforcement want a reference policy's.

Decides shapes, padding and which entropy belongs to which token; whether the files belong together
is decided in scored_documents.py.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from .command_line import Refusal
from .h5_text import write_text_attribute, write_texts
from .part_file import new_file, new_hdf5_file
from .scored_documents import ScoredDocuments, read_scored_documents

FORMAT = "foregather.responses"
FORMAT_VERSION = 1
UNITS = {"logprobs": "nat", "entropies": "nat"}
MEANING = {
    "logprobs": "log-probability of each response token, at the temperature; 0 where mask is 0",
    "entropies": "entropy of the distribution that each response token was drawn from, at the "
    "temperature; 0 where mask is 0",
    "responses": "ids of the response tokens; 0 where mask is 0",
    "response_mask": "1: a token of the response, 0: padding",
    "response_lengths": "tokens of each response",
    "ids": "which document each response is of",
    "temperature": "what logits were divided by before the softmax",
}


@dataclass(frozen=True)
class Responses:
    """B documents, R tokens of the longest response; a response is what was scored of a document,
    at the left of its row.
    """

    logprobs: np.ndarray  # [B, R] float32
    entropies: np.ndarray | None  # [B, R] float32
    responses: np.ndarray  # [B, R] int64
    response_mask: np.ndarray  # [B, R] uint8
    response_lengths: np.ndarray  # [B] int64
    ids: np.ndarray  # [B] text
    temperature: np.float64

    def arrays(self) -> dict[str, np.ndarray]:
        """All that there are, by name."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in held.items() if array is not None}


def read_responses(tokens: Path, results: Path, entropies: bool = False) -> Responses:
    """The responses of a scored token file; `entropies`: refused where the results hold none."""
    documents = read_scored_documents(tokens, results)
    if entropies and documents.entropy is None:
        raise Refusal(f"{results} holds no entropies: score with score.entropy = true")
    return padded(documents, results)


def padded(documents: ScoredDocuments, results: Path) -> Responses:
    """Rows of equal length, one for each document."""
    lengths = documents.ends - documents.begins
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    scored = documents.scored()

    def rows(values: np.ndarray, dtype: str) -> np.ndarray:
        out = np.zeros(mask.shape, dtype)
        out[mask] = values
        return out

    entropies = None
    if documents.entropy is not None:
        # Token t was drawn from what the model predicted after token t - 1.
        before = documents.entropy[scored - 1]
        if not np.isfinite(before).all():
            raise Refusal(
                f"{results} has no finite entropy for {int((~np.isfinite(before)).sum())} of "
                f"{scored.size} scored tokens: score them again with score.entropy = true"
            )
        entropies = rows(before, "f4")
    return Responses(
        logprobs=rows(documents.logprob[scored], "f4"),
        entropies=entropies,
        responses=rows(documents.tokens[scored], "i8"),
        response_mask=mask.astype("u1"),
        response_lengths=lengths,
        ids=np.array(documents.ids, dtype=np.str_),
        temperature=np.float64(documents.temperature),
    )


def check_extension(output: Path) -> None:
    """Refuses a name that does not say which kind of file is wanted."""
    if output.suffix not in (".h5", ".hdf5", ".npz"):
        raise Refusal(f"{output}: name it .h5 or .npz, which says the kind of file to write")


def write_responses(output: Path, responses: Responses, replace: bool) -> None:
    """Writes an HDF5 file, or numpy's if OUTPUT ends so; the same arrays in both."""
    check_extension(output)
    arrays = responses.arrays()
    if output.suffix == ".npz":
        with new_file(output, replace) as stream:
            np.savez(stream, **arrays)
        return
    with new_hdf5_file(output, replace) as file:
        for name, array in arrays.items():
            if name == "ids":
                write_texts(file, name, array.tolist())
            else:
                file[name] = array
            write_text_attribute(file[name], "long_name", MEANING[name])
            if name in UNITS:
                write_text_attribute(file[name], "units", UNITS[name])
        write_text_attribute(file, "format", FORMAT)
        file.attrs["format_version"] = np.int64(FORMAT_VERSION)
