# SPDX-License-Identifier: Apache-2.0
"""Judges a Hugging Face config.json by the table in config_law.json: taken, completed, or refused
by name.

Decides which configs are computed faithfully and makes family defaults explicit; rope settings are
judged in rope_law, windows in window_law.
"""

import json
import math
from pathlib import Path
from typing import Any

from .command_line import Refusal, listed
from .rope_law import judge_rope
from .window_law import judge_windows

LAW = json.loads(Path(__file__).with_name("config_law.json").read_text(encoding="utf-8"))

MIGHT_CHANGE = (
    "unknown key, it might change the mathematics "
    "(if you know that it does not: --drop-config-key {name})"
)
COUNTS = (
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
FLAGS = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window")


def parse_config(text: str, origin: str) -> dict[str, Any]:
    """Reads a config.json strictly: an object, no key twice, no NaN or Infinity."""

    def once(pairs):
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise Refusal(f"{origin}: the key {name} stands twice")
        return dict(pairs)

    def no_constant(word):
        raise Refusal(f"{origin}: {word} is not JSON")

    try:
        config = json.loads(text, object_pairs_hook=once, parse_constant=no_constant)
    except json.JSONDecodeError as error:
        raise Refusal(f"{origin}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise Refusal(f"{origin}: holds no JSON object")
    return config


def is_count(value: Any) -> bool:
    """A whole number above zero; true is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def accepted(value: Any, choices: list[Any]) -> bool:
    """Whether value is one of the choices; 1 and 1.0 are the same, 1 and true are not."""
    return any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool)
        for choice in choices
    )


def drop_keys(config: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The config without keys that the user vouches for; keys that the model reads cannot be
    dropped.
    """
    kept = dict(config)
    faults = []
    read = set(LAW["used"]).union(*(family["used"] for family in LAW["families"].values()))
    for name in names:
        if name in read:
            faults.append(f"{name}: the model reads this key, it cannot be dropped")
        elif name not in kept:
            faults.append(f"{name}: the config has no such key")
        else:
            del kept[name]
    if faults:
        raise Refusal(listed("--drop-config-key", faults))
    return kept


def judge(config: dict[str, Any], origin: str = "config.json") -> tuple[dict[str, Any], list[str]]:
    """Gives the config with every default made explicit, and notes on what was filled in.

    Raises Refusal with all faults listed at once. Keys that the file has keep their values as they
    are.
    """
    family_name, family = _family(config, origin)
    faults: list[str] = []
    notes: list[str] = []
    complete = dict(config)
    _fill(complete, "model_type", family_name, notes)
    _fill(complete, "architectures", [family["architecture"]], notes)
    for key, value in family["defaults"].items():
        # Written as null it means one kv head per query head, whatever the family's default.
        if value == "num_attention_heads" or (key == "num_key_value_heads" and key in config):
            value = config.get("num_attention_heads")
        _fill(complete, key, value, notes)
    used = {*LAW["used"], *family["used"]}
    fixed = {
        key: choices
        for key, choices in {**LAW["fixed"], **family["fixed"]}.items()
        if key not in used
    }
    known = used.union(LAW["harmless"])
    for key, value in complete.items():
        if key in fixed:
            if not accepted(value, fixed[key]):
                default = "" if key in config else f" (the default of {family_name})"
                only = " or ".join(json.dumps(choice) for choice in fixed[key])
                faults.append(f"{key}: {json.dumps(value)}{default} is not supported, only {only}")
        elif key not in known:
            faults.append(f"{key}: {MIGHT_CHANGE.format(name=key)}")
    _judge_numbers(complete, faults, notes)
    judge_windows(complete, family["windows"], faults)
    judge_rope(complete, LAW["rope"], faults, notes)
    if faults:
        raise Refusal(listed(f"{origin} cannot be computed faithfully:", sorted(faults)))
    return complete, notes


def tensor_kinds(config: dict[str, Any]) -> dict[str, bool]:
    """Of a judged config: qkv_bias, output_bias, mlp_bias and qk_norm, whether the model has
    them.
    """
    family = LAW["families"][config["model_type"]]
    return {
        kind: config[told] if isinstance(told, str) else told
        for kind, told in family["tensors"].items()
    }


def _family(config: dict[str, Any], origin: str) -> tuple[str, dict[str, Any]]:
    """The family that model_type and architectures agree on."""
    names = ", ".join(
        f"{name} ({family['architecture']})" for name, family in LAW["families"].items()
    )
    model_type = config.get("model_type")
    architectures = config.get("architectures")
    for name, family in LAW["families"].items():
        if model_type == name and architectures in (None, [family["architecture"]]):
            return name, family
        if model_type is None and architectures == [family["architecture"]]:
            return name, family
    raise Refusal(
        f"{origin}: model_type {json.dumps(model_type)} with architectures "
        f"{json.dumps(architectures)} is not supported; supported are {names}"
    )


def _fill(config: dict[str, Any], key: str, value: Any, notes: list[str]) -> None:
    """Puts in a default for a key that is absent; null stands for absent where null is not a value
    of the key.
    """
    if key in config and (config[key] is not None or key == "sliding_window"):
        return
    if value is None:
        return
    said = "null" if key in config else "absent"
    config[key] = value
    notes.append(f"{key} is {said}: the family's default {json.dumps(value)} is recorded")


def _judge_numbers(config: dict[str, Any], faults: list[str], notes: list[str]) -> None:
    """Counts, flags and the epsilon: present, of the right type, and fitting each other."""
    for key in LAW["required"]:
        if config.get(key) is None:
            faults.append(f"{key}: missing, and no default is assumed")
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if config.get("head_dim") is None and is_count(heads) and is_count(hidden):
        if hidden % heads:
            faults.append(
                f"head_dim: missing, and hidden_size {hidden} is no multiple of {heads} heads"
            )
        else:
            _fill(config, "head_dim", hidden // heads, notes)
    for key in COUNTS:
        if config.get(key) is not None and not is_count(config[key]):
            faults.append(f"{key}: {json.dumps(config[key])} is not a positive whole number")
    for key in FLAGS:
        if key in config and not isinstance(config[key], bool):
            faults.append(f"{key}: {json.dumps(config[key])} is neither true nor false")
    epsilon = config.get("rms_norm_eps")
    if epsilon is not None:
        number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
        if not number or not math.isfinite(epsilon) or epsilon < 0:
            faults.append(f"rms_norm_eps: {json.dumps(epsilon)} is not a number of zero or more")
    groups = config.get("num_key_value_heads")
    if is_count(heads) and is_count(groups) and heads % groups:
        faults.append(f"num_key_value_heads: {heads} heads are no multiple of {groups}")
    if is_count(config.get("head_dim")) and config["head_dim"] % 2:
        faults.append(f"head_dim: {config['head_dim']} is odd, rotary embedding needs pairs")
