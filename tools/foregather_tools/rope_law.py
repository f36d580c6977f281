# SPDX-License-Identifier: Apache-2.0
"""Judges the rotary settings of a config in both spellings, and says what they come to.

Decides which rope types and keys are computed and that two spellings agree; not the rest of the
config.
"""

import json
import math
from typing import Any

REASONS = {
    "linear": "positions would be divided by a factor",
    "dynamic": "the base would change with the length of a document",
    "yarn": "frequencies and attention would be scaled by its ramp",
    "longrope": "frequencies would change with the length of a document",
    "su": "frequencies would change with the length of a document",
}


def is_number(value: Any) -> bool:
    """A finite number; true is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def rope_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a judged config in one form: rope_type, rope_theta and the type's own
    numbers.
    """
    block = dict(config.get("rope_scaling") or {}) | dict(config.get("rope_parameters") or {})
    kind = block.pop("rope_type", None) or block.pop("type", None) or "default"
    block.pop("type", None)
    theta = block.pop("rope_theta", None) or config.get("rope_theta")
    return {"rope_type": kind, "rope_theta": theta} | block


def judge_rope(
    config: dict[str, Any], law: dict[str, Any], faults: list[str], notes: list[str]
) -> None:
    """Checks rope_theta, rope_scaling and rope_parameters of `config`, and records a missing base
    in it.

    Adds to `faults` and `notes`; `law` is the "rope" part of config_law.json.
    """
    before = len(faults)
    kinds = {}
    for spelling in ("rope_scaling", "rope_parameters"):
        block = config.get(spelling)
        if block is None:
            continue
        if not isinstance(block, dict):
            faults.append(f"{spelling}: {json.dumps(block)} is no object")
            continue
        kinds[spelling] = _judge_block(spelling, block, law, faults)
    if len(faults) == before:
        _judge_agreement(config, kinds, faults)
    if len(faults) == before:
        _record_theta(config, law, notes)


def _judge_block(
    name: str, block: dict[str, Any], law: dict[str, Any], faults: list[str]
) -> str | None:
    """Checks one settings object on its own and gives its rope type."""
    named = {block[key] for key in law["type_keys"] if isinstance(block.get(key), str)}
    if len(named) > 1:
        faults.append(f"{name}: rope_type and type disagree ({', '.join(sorted(named))})")
        return None
    if not named and any(key not in ("rope_theta", *law["fixed"]) for key in block):
        faults.append(f"{name}: no rope_type is given")
        return None
    kind = named.pop() if named else "default"
    if kind not in law["types"]:
        reason = REASONS.get(kind, "an unknown type")
        faults.append(f"{name}: rope type {kind} is not supported ({reason})")
        return None
    rule = law["types"][kind]
    for key, value in block.items():
        if key in law["fixed"]:
            if value not in law["fixed"][key] or isinstance(value, bool):
                faults.append(f"{name}.{key}: {json.dumps(value)} is not supported")
        elif key in law["type_keys"] or key in law["harmless"]:
            continue
        elif key not in rule["used"]:
            faults.append(
                f"{name}.{key}: unknown to rope type {kind}, it might change the mathematics"
            )
        elif not is_number(value) or value <= 0:
            faults.append(f"{name}.{key}: {json.dumps(value)} is not a number above zero")
    for key in rule["required"]:
        if key not in block:
            faults.append(f"{name}.{key}: missing, and rope type {kind} needs it")
    low, high = block.get("low_freq_factor"), block.get("high_freq_factor")
    if is_number(low) and is_number(high) and low >= high:
        faults.append(f"{name}: low_freq_factor {low} is not below high_freq_factor {high}")
    return kind


def _judge_agreement(config: dict[str, Any], kinds: dict[str, str], faults: list[str]) -> None:
    """Where both spellings speak, they must say the same."""
    new = config.get("rope_parameters") or {}
    old = config.get("rope_scaling") or {}
    bases = {
        "rope_theta": config.get("rope_theta"),
        "rope_parameters.rope_theta": new.get("rope_theta"),
        "rope_scaling.rope_theta": old.get("rope_theta"),
    }
    given = {name: value for name, value in bases.items() if value is not None}
    if not all(is_number(value) and value > 0 for value in given.values()):
        faults.append(
            f"rope_theta: {json.dumps(config.get('rope_theta'))} is not a number above zero"
        )
    elif len(set(given.values())) > 1:
        said = ", ".join(f"{name} {value}" for name, value in given.items())
        faults.append(f"the two spellings of rope settings disagree: {said}")
    if "rope_scaling" not in config or "rope_parameters" not in kinds:
        return
    ignored = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
    old_numbers = {key: value for key, value in old.items() if key not in ignored}
    new_numbers = {key: value for key, value in new.items() if key not in ignored}
    if (
        kinds.get("rope_scaling", "default") != kinds["rope_parameters"]
        or old_numbers != new_numbers
    ):
        faults.append(
            "the two spellings of rope settings disagree: rope_scaling "
            f"{json.dumps(config['rope_scaling'])}, rope_parameters {json.dumps(new)}"
        )


def _record_theta(config: dict[str, Any], law: dict[str, Any], notes: list[str]) -> None:
    """Writes the default base into the config if no spelling gives one."""
    if rope_settings(config)["rope_theta"] is not None:
        return
    owner = "rope_theta"
    if isinstance(config.get("rope_parameters"), dict):
        config["rope_parameters"] = config["rope_parameters"] | {"rope_theta": law["default_theta"]}
        owner = "rope_parameters.rope_theta"
    else:
        config["rope_theta"] = law["default_theta"]
    notes.append(f"{owner} is absent: the default {law['default_theta']} is recorded")
