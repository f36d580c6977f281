# SPDX-License-Identifier: Apache-2.0
"""Judges the keys of a config that say which layers see a sliding window only.

Decides what these keys may hold and that they fit each other, as transformers reads them; what the
windows do is the program's affair.
"""

import json
from typing import Any

KINDS = ("full_attention", "sliding_attention")


def _is_whole(value: Any, least: int) -> bool:
    """A whole number of at least so much; true is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def judge_windows(config: dict[str, Any], rule: str, faults: list[str]) -> None:
    """Checks sliding_window and, where windows differ by layer, what says so.

    `rule` is "windows" of the family in config_law.json; a family without windows has none of
    these keys. Adds to `faults`.
    """
    if rule == "none":
        return
    window = config.get("sliding_window")
    if window is not None and not _is_whole(window, 1):
        faults.append(
            f"sliding_window: {json.dumps(window)} is neither null nor a positive whole number"
        )
    if rule == "every_layer":
        return
    first = config.get("max_window_layers")
    if not _is_whole(first, 0):
        faults.append(
            f"max_window_layers: {json.dumps(first)} is not a whole number of zero or more"
        )
    kinds = config.get("layer_types")
    if kinds is None:
        return
    if not isinstance(kinds, list) or not all(kind in KINDS for kind in kinds):
        faults.append(
            f"layer_types: {json.dumps(kinds)} is no list of {' and '.join(map(json.dumps, KINDS))}"
        )
    elif len(kinds) != config.get("num_hidden_layers"):
        faults.append(
            f"layer_types: {len(kinds)} entries, num_hidden_layers is "
            f"{json.dumps(config.get('num_hidden_layers'))}"
        )
    elif KINDS[1] in kinds and (window is None or config.get("use_sliding_window") is not True):
        faults.append(
            "layer_types: names sliding_attention, but there is no window (use_sliding_window "
            f"{json.dumps(config.get('use_sliding_window'))}, sliding_window {json.dumps(window)})"
        )
