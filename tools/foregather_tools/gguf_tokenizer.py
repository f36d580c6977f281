# SPDX-License-Identifier: Apache-2.0
"""Builds a tokenizer.json out of the vocabulary and merges of a GGUF file.

Decides which pre-tokenizers are known well enough to give the same ids; for others no tokenizer is
stored.
"""

import json
from typing import Any

CONTROL, USER_DEFINED = 3, 4

# SmolLM's own tokenizer.json (and llama.cpp) split off digits before the words, transformers'
# reading of a GGUF file splits words first. We follow the latter, our reference for scores; the
# user is told where it matters.
SMOLLM_NOTE = (
    "; ids are those that transformers gives for this file, while SmolLM's own tokenizer.json "
    "differs where several blanks stand before a digit (--tokenizer FILE stores that one)"
)

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _bytes(use_regex: bool, prefix_space: bool) -> dict[str, Any]:
    """Splits by GPT-2's rule if use_regex, then turns bytes into the byte alphabet."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _pre_tokenizer(name: str, prefix_space: bool) -> dict[str, Any] | None:
    """The pre-tokenizer that a tokenizer.ggml.pre name stands for, None if unknown here."""
    if name == "gpt-2":
        return _bytes(True, prefix_space)
    if name == "smollm":
        digits = {"type": "Digits", "individual_digits": True}
        return {"type": "Sequence", "pretokenizers": [_bytes(True, prefix_space), digits]}
    if name in ("llama-bpe", "llama3", "llama-v3"):
        words = {
            "type": "Split",
            "pattern": {"Regex": LLAMA3_WORDS},
            "behavior": "Isolated",
            "invert": False,
        }
        return {"type": "Sequence", "pretokenizers": [words, _bytes(False, prefix_space)]}
    return None


def _added_tokens(tokens: list[str], kinds: list[int]) -> list[dict[str, Any]]:
    """Control and user-defined tokens, which are found in a text before anything is split."""
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == CONTROL,
        }
        for number, (token, kind) in enumerate(zip(tokens, kinds))
        if kind in (CONTROL, USER_DEFINED)
    ]


def build_tokenizer(fields: dict[str, Any]) -> tuple[str | None, str]:
    """Gives the text of a tokenizer.json, or None, and a sentence on what was done. `fields` are
    the metadata.
    """
    model = fields.get("tokenizer.ggml.model")
    name = fields.get("tokenizer.ggml.pre", "default")
    if model != "gpt2":
        return None, f"no /tokenizer is stored: its model {model} cannot be rebuilt faithfully"
    pre_tokenizer = _pre_tokenizer(name, bool(fields.get("tokenizer.ggml.add_space_prefix", False)))
    if pre_tokenizer is None:
        return None, f"no /tokenizer is stored: its words ({name}) cannot be rebuilt faithfully"
    tokens = fields.get("tokenizer.ggml.tokens", [])
    kinds = fields.get("tokenizer.ggml.token_type", [])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if not tokens or len(vocabulary) != len(tokens) or len(kinds) != len(tokens):
        return (
            None,
            "no /tokenizer is stored: its vocabulary is empty, repeats itself or lacks types",
        )
    text = json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added_tokens(tokens, kinds),
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": _bytes(True, prefix_space=True),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": name not in ("gpt-2", "smollm"),
                "vocab": vocabulary,
                "merges": fields.get("tokenizer.ggml.merges", []),
            },
        },
        ensure_ascii=False,
    )
    said = f"/tokenizer is built from the file's vocabulary and merges (pre-tokenizer {name})"
    return text, said + (SMOLLM_NOTE if name == "smollm" else "")
