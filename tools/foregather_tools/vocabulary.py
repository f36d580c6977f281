# SPDX-License-Identifier: Apache-2.0
"""What a tool needs to turn text into ids, out of a tokenizer.json or a weights file.

Decides where tokenizer and config are read; how text is encoded is decided in text_encoder.py.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from .checksums import refuse_if_broken
from .command_line import Refusal
from .h5_text import read_text
from .safetensors_folder import read_utf8
from .text_encoder import TextEncoder

MAKER = "tools/import_model"  # of weights files


@dataclass
class Vocabulary:
    """What turns text into ids; `encoder` is None where the input holds ids already."""

    size: int
    encoder: TextEncoder | None = None
    sha256: str | None = None
    config: dict[str, Any] | None = None
    beside: Path | None = None


def tokenizer_vocabulary(
    tokenizer: Path | None, weights: Path | None, remedy: str = "give --tokenizer"
) -> Vocabulary:
    """The vocabulary of a tokenizer.json if one is given, else that of a weights file, which brings
    its config along. `remedy` says what to do where that holds no tokenizer; {vocab_size} in it is
    the model's.
    """
    config: dict[str, Any] = {}
    if tokenizer is not None:
        text = read_utf8(tokenizer)
        encoder = TextEncoder(text, str(tokenizer))
        size, beside = encoder.vocab_size, tokenizer.parent
    else:
        text, config = _read_weights(weights, remedy)
        encoder, beside = TextEncoder(text, f"/tokenizer of {weights}"), None
        size = config["vocab_size"]
    return Vocabulary(
        size, encoder, hashlib.sha256(text.encode("utf-8")).hexdigest(), config, beside
    )


def _read_weights(path: Path, remedy: str) -> tuple[str, dict[str, Any]]:
    """Tokenizer text and config of a weights file."""
    try:
        with h5py.File(path) as file:
            if "config" not in file:
                raise Refusal(f"{path} is no weights file: it has no /config")
            refuse_if_broken(path, file["config"], MAKER)
            config = json.loads(read_text(file["config"]))
            if "tokenizer" not in file:
                told = remedy.format(vocab_size=config["vocab_size"])
                raise Refusal(f"{path} holds no /tokenizer: {told}")
            refuse_if_broken(path, file["tokenizer"], MAKER)
            return read_text(file["tokenizer"]), config
    except OSError as error:
        raise Refusal(f"{path} cannot be read as HDF5: {error}") from None
