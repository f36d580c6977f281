# SPDX-License-Identifier: Apache-2.0
"""Finds the llama3 rope settings behind the frequency factors that a GGUF file stores in their
place.

Decides whether the factors are exactly those of a known setting; anything else is refused, never
rounded to one.
"""

from typing import Any

import numpy as np

from .command_line import Refusal

# The settings of the published llama3-scaled models; the largest factor is read off the tensor.
LOW, HIGH, ORIGINAL = 1.0, 4.0, 8192


def llama3_factors(
    theta: float, size: int, factor: float, low: float, high: float, original: float
) -> np.ndarray:
    """[size / 2] numbers that each rotary frequency is divided by, as llama.cpp's converter
    computes them.
    """
    waves = 2 * np.pi * theta ** (np.arange(0, size, 2) / size)
    smooth = (original / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(waves < original / high, 1.0, np.where(waves > original / low, factor, between))


def llama3_scaling(
    factors: np.ndarray, theta: float, size: int, original: int | None
) -> dict[str, Any] | None:
    """The rope_scaling object whose factors these are; None if they are all one. `original` is the
    file's hint.

    Raises Refusal if no known setting gives them to float32 accuracy.
    """
    if factors.size == size // 2 and np.all(factors == 1.0):
        return None
    factor = float(factors.max(initial=1.0))
    for context in (original, ORIGINAL):
        if context is None or factors.size != size // 2:
            continue
        if np.allclose(
            factors, llama3_factors(theta, size, factor, LOW, HIGH, context), rtol=1e-5, atol=0
        ):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": context,
            }
    raise Refusal(
        "rope_freqs.weight holds frequency factors that are not those of llama3 scaling with low "
        f"1, high 4 and original length {ORIGINAL}: import the model from its Hugging Face folder"
    )
