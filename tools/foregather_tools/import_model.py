# SPDX-License-Identifier: Apache-2.0
"""The tool import_model: a Hugging Face folder or a GGUF file becomes a weights file.

Decides the order of the checks and what is told; how each source is read and what is accepted is
decided in the modules it calls.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import config_law, gguf_model, model_tensors, safetensors_folder
from .command_line import Refusal, Speaker, human_bytes, printable, run
from .part_file import check_output
from .tensors import Tensor
from .weights_writer import write_weights

TOOL = "import_model"
DTYPES = {"as-stored": None, "fp32": "float32", "bf16": "bfloat16"}


@dataclass
class Checkpoint:
    """What a source gives, before it is judged: tensors are unread."""

    config: dict[str, Any]
    tensors: list[Tensor]
    tokenizer_text: str | None
    source: str
    notes: list[str]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Makes a weights file (HDF5) from a Hugging Face folder or a GGUF file.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. OUTPUT "
        "appears under its name only when it is whole; until then it is OUTPUT.part.",
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=Path,
        help="a folder with config.json and model.safetensors (or model.safetensors.index.json "
        "and its shards), or a GGUF file of architecture llama, qwen2 or qwen3",
    )
    parser.add_argument("output", metavar="OUTPUT.h5", type=Path, help="the weights file to write")
    parser.add_argument("--replace", action="store_true", help="replace OUTPUT if it exists")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="as-stored",
        help="type of all stored tensors (as-stored: each keeps its own, a GGUF file is stored "
        "as fp32; bf16 rounds to nearest, ties to even)",
    )
    parser.add_argument(
        "--drop-config-key",
        metavar="NAME",
        action="append",
        default=[],
        help="leave this key out of the stored config, on your word that it does not change the "
        "mathematics (may be given several times)",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="FILE",
        type=Path,
        help="store this tokenizer.json in place of the source's own",
    )
    return parser


def read_folder(folder: Path) -> Checkpoint:
    """A Hugging Face folder as a checkpoint."""
    origin = folder / "config.json"
    config = config_law.parse_config(safetensors_folder.read_utf8(origin), str(origin))
    tensors, files = safetensors_folder.folder_tensors(folder)
    tokenizer = folder / "tokenizer.json"
    text = safetensors_folder.read_utf8(tokenizer) if tokenizer.exists() else None
    notes = [] if text else [f"{folder} has no tokenizer.json: the file gets no /tokenizer"]
    source = f"{printable(folder)} ({len(files)} safetensors file{'s' if len(files) > 1 else ''})"
    return Checkpoint(config, tensors, text, source, notes)


def read_source(source: Path) -> Checkpoint:
    """Whatever SOURCE is, as a checkpoint."""
    if source.is_dir():
        return read_folder(source)
    if not source.exists():
        raise Refusal(f"{source} does not exist")
    if source.name == safetensors_folder.SINGLE or source.suffix == ".safetensors":
        raise Refusal(
            f"{source} is one file of a checkpoint: give its folder, which holds config.json too"
        )
    model = gguf_model.read(source)
    return Checkpoint(
        model.config, model.tensors, model.tokenizer_text, printable(source), model.notes
    )


def import_model(options: argparse.Namespace) -> None:
    """Reads, judges, writes."""
    speaker = Speaker(TOOL)
    check_output(options.output, options.replace)
    checkpoint = read_source(options.source)
    notes = checkpoint.notes
    if options.tokenizer:
        checkpoint.tokenizer_text = safetensors_folder.read_utf8(options.tokenizer)
        notes.append(f"/tokenizer is {options.tokenizer}, as you asked")
    kept = config_law.drop_keys(checkpoint.config, options.drop_config_key)
    config, filled = config_law.judge(kept, f"the config of {options.source}")
    notes += filled
    attributes = {}
    if options.drop_config_key:
        names = ", ".join(sorted(set(options.drop_config_key)))
        attributes["dropped_config_keys"] = names
        notes.append(f"left out of the config on your word: {names}")
    tensors = model_tensors.select_tensors(config, checkpoint.tensors, notes)
    for note in notes:
        speaker.say(note)

    dtype = DTYPES[options.dtype]
    total = sum(tensor.bytes_as(dtype or tensor.dtype) for tensor in tensors)
    done, started = 0, time.monotonic()

    def wrote(count: int) -> None:
        nonlocal done
        done += count
        rate = done / max(time.monotonic() - started, 1e-9)
        speaker.progress(
            lambda: f"{human_bytes(done)} of {human_bytes(total)} written, {human_bytes(rate)}/s"
        )

    sha256 = write_weights(
        options.output,
        json.dumps(config, indent=2, ensure_ascii=False) + "\n",
        tensors,
        source=checkpoint.source,
        tokenizer_text=checkpoint.tokenizer_text,
        dtype=dtype,
        attributes=attributes,
        replace=options.replace,
        wrote=wrote,
    )
    print(
        f"{options.output}: {len(tensors)} tensors, {human_bytes(total)}, content_sha256 {sha256}"
    )


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    options = arguments().parse_args(argv)
    return run(TOOL, lambda: import_model(options))
