# SPDX-License-Identifier: Apache-2.0
"""The tool export_model: a weights file or a checkpoint becomes a Hugging Face folder.

Decides the order of the checks and what is told; how files are read and written is decided in the
modules it calls.
"""

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import config_law, model_tensors
from .command_line import Refusal, Speaker, check_stop, human_bytes, listed, run
from .part_file import check_folder, check_space, new_folder
from .safetensors_writer import write_folder
from .tensors import Tensor, bfloat16_to_float32
from .weights_reader import WeightsFile, open_weights

TOOL = "export_model"
DTYPES = {"as-stored": None, "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# The largest number that still rounds to a finite float16 is just below this.
FLOAT16_OVERFLOW = 65520.0


def size(text: str) -> int:
    """A number of bytes, as written on the command line."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not match or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no size: a number with one of {', '.join(filter(None, UNITS))}"
        )
    return int(float(match[1]) * UNITS[match[2]])


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Makes a Hugging Face folder (config.json, safetensors, tokenizer.json) from a "
        "weights file or a checkpoint. config.json has the bytes of /config.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused before any work. FOLDER "
        "appears under its name only when it is whole; until then it is FOLDER.part.",
    )
    parser.add_argument(
        "weights", metavar="WEIGHTS.h5", type=Path, help="a weights file or a checkpoint"
    )
    parser.add_argument(
        "output", metavar="FOLDER", type=Path, help="the folder to make (absent, or empty)"
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="as-stored",
        help="type of all tensors (as-stored: each keeps its own; bf16 and fp16 round to nearest, "
        "ties to even; a value too large for fp16 is refused)",
    )
    parser.add_argument(
        "--shard-size",
        metavar="SIZE",
        type=size,
        default="5GB",
        help="largest safetensors file, as 5GB, 500MB or 2GiB; a larger model is written as "
        "several files and their index (default: %(default)s)",
    )
    return parser


def too_large(tensor: Tensor) -> str | None:
    """What would overflow if the tensor were stored as float16, None if nothing would."""
    if tensor.dtype == "float16":
        return None
    count, largest = 0, 0.0
    for begin, end in tensor.pieces():
        check_stop()
        raw = tensor.read(begin, end)
        wide = np.abs(bfloat16_to_float32(raw) if tensor.dtype == "bfloat16" else raw)
        over = wide[np.isfinite(wide) & (wide >= FLOAT16_OVERFLOW)]
        count += over.size
        largest = max(largest, float(over.max(initial=0)))
    return f"{tensor.name}: {count} values, the largest {largest:.6g}" if count else None


def check_range(tensors: list[Tensor], dtype: str | None) -> None:
    """Refuses float16 if a finite value would become infinite, naming every such tensor."""
    if dtype == "float16":
        faults = list(filter(None, map(too_large, tensors)))
        if faults:
            heading = "values beyond fp16's range (65504) would become infinite, take bf16 or fp32:"
            raise Refusal(listed(heading, faults))


def notes_of(model: WeightsFile, config: dict, dtype: str | None) -> list[str]:
    """What the user should know of the folder that is about to be written."""
    notes = []
    if model.others:
        names = ", ".join(model.others)
        notes.append(f"left out: {names} (a training's state is no part of a model)")
    if model.tokenizer is None:
        notes.append("no /tokenizer in the file: the folder gets no tokenizer.json")
    said = config.get("dtype", config.get("torch_dtype"))
    if dtype and isinstance(said, str) and said != dtype:
        notes.append(
            f"the tensors are {dtype}, and config.json, kept as it is, says {said}: transformers "
            f"casts to {said} unless told dtype={dtype}"
        )
    return notes


def export_model(options: argparse.Namespace) -> None:
    """Reads, judges, writes."""
    speaker, dtype = Speaker(TOOL), DTYPES[options.dtype]
    check_folder(options.output)
    with open_weights(options.weights) as model:
        origin = f"/config of {options.weights}"
        stored = config_law.parse_config(model.config, origin)
        config, _ = config_law.judge(stored, origin)
        notes = notes_of(model, stored, dtype)
        tensors = model_tensors.select_tensors(config, model.tensors, notes)
        check_range(tensors, dtype)
        for note in notes:
            speaker.say(note)
        total = sum(tensor.bytes_as(dtype or tensor.dtype) for tensor in tensors)
        done, started = 0, time.monotonic()

        def wrote(count: int) -> None:
            nonlocal done
            done += count
            rate = done / max(time.monotonic() - started, 1e-9)
            speaker.progress(
                lambda: (
                    f"{human_bytes(done)} of {human_bytes(total)} written, {human_bytes(rate)}/s"
                )
            )

        config_bytes = model.config.encode("utf-8")
        tokenizer_bytes = (model.tokenizer or "").encode("utf-8")
        room = total + len(config_bytes) + len(tokenizer_bytes) + 512 * len(tensors) + 2**16
        with new_folder(options.output) as folder:
            check_space(folder, room, f"the folder {options.output}")
            (folder / "config.json").write_bytes(config_bytes)
            if model.tokenizer is not None:
                (folder / "tokenizer.json").write_bytes(tokenizer_bytes)
            files = write_folder(folder, tensors, dtype, options.shard_size, wrote)
    plural = "s" if len(files) > 1 else ""
    print(
        f"{options.output}: {len(tensors)} tensors, {human_bytes(total)} in {len(files)} "
        f"safetensors file{plural}"
    )


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    options = arguments().parse_args(argv)
    return run(TOOL, lambda: export_model(options))
