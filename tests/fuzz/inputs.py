# SPDX-License-Identifier: Apache-2.0
"""A weights file and a token file as the tools write them, for the fuzzing program.

Decides their contents alone: every dataset and attribute that readers know, and groups of both
kinds that HDF5 has, small ones and indexed ones.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("tools", "tests/support")]

import fixtures  # noqa: E402
from foregather_tools.tensors import from_array  # noqa: E402
from foregather_tools.token_file import TokenFileWriter  # noqa: E402
from foregather_tools.weights_writer import write_weights  # noqa: E402

LAYERS = 9  # more than a group's header holds


def main(folder: Path) -> None:
    """Writes weights.h5 and tokens.h5 into a folder."""
    config = fixtures.llama_config(num_hidden_layers=LAYERS)
    tensors = [
        from_array(name, array, "float32") for name, array in fixtures.random_arrays(config, 1).items()
    ]
    tokenizer = json.dumps({"version": "1.0", "model": {"vocab": {"a": 0, "b": 1, "c": 2, "d": 3}}})
    text = json.dumps(config, indent=2) + "\n"
    write_weights(
        folder / "weights.h5", text, tensors, source="fuzzing", tokenizer_text=tokenizer, replace=True
    )
    generator = np.random.default_rng(1)
    with TokenFileWriter(
        folder / "tokens.h5", "uint16", 4, True, columns=("score_from",)
    ) as writer:
        for number in range(40):
            ids = generator.integers(0, 4, int(generator.integers(0, 30)))
            writer.add(f"document {number}", ids, int(ids.size), score_from=number % 3)
        writer.finish("fuzzing", None)


main(Path(sys.argv[1]))
