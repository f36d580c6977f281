# SPDX-License-Identifier: Apache-2.0
"""Tiny weights and token files whose scores can be worked out by hand, as functions and as a
command line.

Decides the fixtures' numbers; the weights file's layout is the tools' own, token files are written
plainly so that faulty ones are possible.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from foregather_tools.model_tensors import expected_tensors  # noqa: E402
from foregather_tools.tensors import convert, from_array  # noqa: E402
from foregather_tools.weights_writer import write_weights  # noqa: E402

# F-BG documents: targets cost 1, 1, 1 (A), 3 (B) and 1, 1, 1, 3, 1, 1, 1, 3, 1 (W), in units of ln
# 2.
A = [0, 1, 2, 3]
B = [0, 0]
W = [0, 1, 2, 3, 2, 3, 0, 1, 0, 1]


def llama_config(**changes: Any) -> dict[str, Any]:
    """A complete Llama config of the smallest size; `changes` replace or add keys, a value of None
    stays null.
    """
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4,
        "intermediate_size": 4,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 2,
        "vocab_size": 4,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }
    return config | changes


def write_model(
    path: Path, config: dict[str, Any], arrays: dict[str, np.ndarray], dtype: str = "float32"
) -> Path:
    """Writes float32 arrays as a weights file, stored as `dtype`; replaces the file."""
    tensors = [
        from_array(name, convert(array.astype("<f4"), "float32", dtype), dtype)
        for name, array in arrays.items()
    ]
    text = json.dumps(config, indent=2) + "\n"
    write_weights(Path(path), text, tensors, source="test fixture", replace=True)
    return Path(path)


def blank(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """All tensors of a config: matrices and biases zero, norm weights one."""
    return {
        name: np.full(shape, 1.0 if "norm" in name else 0.0, "<f4")
        for name, shape in expected_tensors(config).items()
    }


def bigram_arrays(config: dict[str, Any], embedding: float = 1000.0) -> dict[str, np.ndarray]:
    """F-BG: p(i+1|i) = 1/2, p(i+2|i) = 1/4, p(i+3|i) = p(i|i) = 1/8 (mod 4), exact in float32."""
    arrays = blank(config)
    arrays["model.embed_tokens.weight"] = embedding * np.eye(4, dtype="<f4")
    probability = [1 / 8, 1 / 2, 1 / 4, 1 / 8]
    head = [[0.5 * math.log(probability[(j - i) % 4]) for i in range(4)] for j in range(4)]
    arrays["lm_head.weight"] = np.array(head, "<f4")
    return arrays


def bigram(path: Path, dtype: str = "float32", **changes: Any) -> Path:
    """F-BG."""
    config = llama_config(**changes)
    return write_model(path, config, bigram_arrays(config), dtype)


def uniform(path: Path, vocab: int, dtype: str = "float32", seed: int = 1, **changes: Any) -> Path:
    """F-U: random weights below a head of zeros, so every token costs ln(vocab)."""
    config = llama_config(vocab_size=vocab, **changes)
    arrays = random_arrays(config, seed)
    arrays["lm_head.weight"][:] = 0.0
    return write_model(path, config, arrays, dtype)


def epsilon(path: Path, eps: float) -> Path:
    """F-EPS: log p(1|0) is -1.2550639 with eps 1e-5, -1.0329637 with 1e-6."""
    config = llama_config(rms_norm_eps=eps)
    return write_model(path, config, bigram_arrays(config, embedding=0.001))


def head_dim(path: Path, case: str) -> Path:
    """T12: document [0, 2] costs 0.4064344 in case i (head 1 uses kv head 0) and 1.3862944 in case
    ii.
    """
    config = llama_config(
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=2,
        rms_norm_eps=1e-12,
    )
    arrays = blank(config)
    arrays["model.embed_tokens.weight"] = np.eye(4, dtype="<f4")
    arrays["model.layers.0.self_attn.v_proj.weight"][0, 0] = 1.0
    arrays["model.layers.0.self_attn.o_proj.weight"][3, {"i": 2, "ii": 4}[case]] = 1.0
    arrays["lm_head.weight"][2, 3] = 1.0
    return write_model(path, config, arrays)


def random_arrays(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Random weights of a size that keeps activations near one; norm weights and biases too, so a
    lost one shows.
    """
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, shape in expected_tensors(config).items():
        values = generator.standard_normal(shape)
        if "norm" in name:
            values = 1.0 + 0.2 * values
        elif name.endswith(".bias"):
            values = 0.2 * values
        elif name != "model.embed_tokens.weight":
            values = values / math.sqrt(shape[1])
        arrays[name] = values.astype("<f4")
    return arrays


def random_llama(path: Path, dtype: str = "float32", seed: int = 1, **changes: Any) -> Path:
    """A random Llama of any size: keys of its config are given as arguments."""
    config = llama_config(**changes)
    return write_model(path, config, random_arrays(config, seed), dtype)


def write_tokens(
    path: Path,
    documents: list[list[int]],
    dtype: str = "uint32",
    offsets: list[int] | None = None,
    **extra: Any,
) -> Path:
    """A token file as given, faulty ones too; `extra` are further datasets."""
    tokens = np.array([token for document in documents for token in document], dtype=dtype)
    if offsets is None:
        offsets = np.cumsum([0] + [len(document) for document in documents])
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file["tokens"] = tokens
        file["offsets"] = np.array(offsets, np.int64)
        for name, values in extra.items():
            file[name] = values
    return Path(path)


def token_cases(folder: Path) -> dict[str, Path]:
    """T24 for a vocabulary of 70001: good-* hold tokens 5, 70000, 5 (uint16: 5, 65535, 5); every
    bad-* is to be refused.
    """
    folder = Path(folder)
    document = [5, 70000, 5]
    cases = {
        f"good-{dtype}": write_tokens(folder / f"good-{dtype}.h5", [document], dtype)
        for dtype in ("int64", "uint32", "int32")
    }
    cases["good-uint16"] = write_tokens(folder / "good-uint16.h5", [[5, 65535, 5]], "uint16")
    cases["bad-negative-int16"] = write_tokens(
        folder / "bad-negative-int16.h5", [[5, -1, 5]], "int16"
    )
    cases["bad-float32"] = write_tokens(folder / "bad-float32.h5", [document], "float32")
    cases["bad-id"] = write_tokens(folder / "bad-id.h5", [[5, 6], [5, 70001]], "int64")
    cases["bad-offsets-order"] = write_tokens(
        folder / "bad-offsets-order.h5", [document], offsets=[0, 3, 2]
    )
    cases["bad-offsets-end"] = write_tokens(
        folder / "bad-offsets-end.h5", [document], offsets=[0, 4]
    )
    cases["bad-two-dimensions"] = folder / "bad-two-dimensions.h5"
    with h5py.File(cases["bad-two-dimensions"], "w") as file:
        file["tokens"] = np.array([document], np.uint32)
        file["offsets"] = np.array([0, 3], np.int64)
    return cases


def bigram_documents(folder: Path) -> dict[str, Path]:
    """F-BG's documents, one file each, and A and B together in ab.h5."""
    sets = {"a": [A], "b": [B], "w": [W], "ab": [A, B]}
    return {
        name: write_tokens(Path(folder) / f"{name}.h5", documents)
        for name, documents in sets.items()
    }


def random_documents(
    path: Path, vocab: int, lengths: list[int], seed: int = 1, dtype: str = "uint32"
) -> Path:
    """Documents of the given lengths with ids drawn evenly."""
    generator = np.random.default_rng(seed)
    return write_tokens(
        path, [generator.integers(0, vocab, length).tolist() for length in lengths], dtype
    )


def _changes(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE words with JSON values."""
    return {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in pairs)}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Writes one fixture, or one family of them, into a folder."
    )
    names = (
        "bigram",
        "uniform",
        "epsilon",
        "head-dim",
        "random",
        "bigram-documents",
        "documents",
        "token-cases",
    )
    parser.add_argument("name", choices=names)
    parser.add_argument("folder", type=Path, help="folder to write into, made if absent")
    parser.add_argument(
        "--output", metavar="FILE", help="file name in the folder (default: NAME.h5)"
    )
    parser.add_argument(
        "--dtype",
        help="stored type (weights: float32 float16 bfloat16; documents: any integer type)",
    )
    parser.add_argument(
        "--set", metavar="KEY=JSON", nargs="*", default=[], help="config keys to change or add"
    )
    parser.add_argument(
        "--vocab", type=int, default=97, help="uniform, documents: size of the vocabulary"
    )
    parser.add_argument("--eps", type=float, default=1e-5, help="epsilon: rms_norm_eps")
    parser.add_argument(
        "--case", choices=("i", "ii"), default="i", help="head-dim: which o_proj entry is set"
    )
    parser.add_argument("--seed", type=int, default=1, help="uniform, random, documents")
    parser.add_argument(
        "--documents", type=json.loads, help="documents: a JSON list of lists of ids"
    )
    parser.add_argument(
        "--lengths", type=json.loads, help="documents: a JSON list of lengths, ids are random"
    )
    return parser


def main() -> None:
    """Writes what the command line names."""
    options = arguments().parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / (options.output or f"{options.name}.h5")
    changes, dtype = _changes(options.set), options.dtype or "float32"
    ids = options.dtype or "uint32"
    if options.name == "bigram":
        bigram(path, dtype, **changes)
    elif options.name == "uniform":
        uniform(path, options.vocab, dtype, options.seed, **changes)
    elif options.name == "epsilon":
        epsilon(path, options.eps)
    elif options.name == "head-dim":
        head_dim(path, options.case)
    elif options.name == "random":
        random_llama(path, dtype, options.seed, **changes)
    elif options.name == "bigram-documents":
        bigram_documents(options.folder)
    elif options.name == "token-cases":
        token_cases(options.folder)
    elif options.documents is not None:
        write_tokens(path, options.documents, ids)
    elif options.lengths is not None:
        random_documents(path, options.vocab, options.lengths, options.seed, ids)
    else:
        sys.exit("documents: give --documents or --lengths")


if __name__ == "__main__":
    main()
