# SPDX-License-Identifier: Apache-2.0
"""Judges the rotary settings of a config in both spellings, and says what they come to.

Decides which rope types and keys are computed and that two spellings agree; not the rest of the
config.
"""

import json
import math
from typing import Any

SPELLINGS = ("rope_scaling", "rope_parameters")


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
    """Checks rope_theta, rope_scaling and rope_parameters of `config`, and records in it a missing
    base and other keys of the config that stand for missing settings.

    Adds to `faults` and `notes`; `law` is the "rope" part of config_law.json.
    """
    before = len(faults)
    kinds = {}
    for spelling in SPELLINGS:
        block = config.get(spelling)
        if block is None:
            continue
        if not isinstance(block, dict):
            faults.append(f"{spelling}: {json.dumps(block)} is no object")
            continue
        kinds[spelling] = _judge_block(spelling, block, law, faults)
    if len(faults) == before:
        _judge_agreement(config, kinds, law, faults)
    if len(faults) == before:
        _record_defaults(config, kinds, law, notes)
        theta = rope_settings(config)["rope_theta"]
        if "yarn" in kinds.values() and theta <= 1:
            faults.append(f"rope_theta: {theta} is not above one, and rope type yarn needs that")


def _named_type(
    name: str, block: dict[str, Any], law: dict[str, Any], faults: list[str]
) -> str | None:
    """The rope type that a settings object names, if it is one that is computed."""
    named = {block[key] for key in law["type_keys"] if isinstance(block.get(key), str)}
    if len(named) > 1:
        faults.append(f"{name}: rope_type and type disagree ({', '.join(sorted(named))})")
        return None
    if not named and any(key not in ("rope_theta", *law["fixed"]) for key in block):
        faults.append(f"{name}: no rope_type is given")
        return None
    kind = named.pop() if named else "default"
    if kind not in law["types"]:
        reason = law["refused"].get(kind, "an unknown type")
        faults.append(f"{name}: rope type {kind} is not supported ({reason})")
        return None
    return kind


def _judge_block(
    name: str, block: dict[str, Any], law: dict[str, Any], faults: list[str]
) -> str | None:
    """Checks one settings object on its own and gives its rope type."""
    kind = _named_type(name, block, law, faults)
    if kind is None:
        return None
    rule = law["types"][kind]
    for key, value in block.items():
        if key in law["fixed"]:
            if value not in law["fixed"][key] or isinstance(value, bool):
                faults.append(f"{name}.{key}: {json.dumps(value)} is not supported")
        elif key not in law["type_keys"]:
            fault = _fault_of(key, value, kind, rule)
            if fault:
                faults.append(f"{name}.{key}: {fault}")
    for key in rule["required"]:
        if key not in block:
            faults.append(f"{name}.{key}: missing, and rope type {kind} needs it")
    if rule["increasing"]:
        low, high = rule["increasing"]
        below, above = (block.get(key) or rule["optional"].get(key) for key in (low, high))
        if is_number(below) and is_number(above) and below >= above:
            faults.append(f"{name}: {low} {below} is not below {high} {above}")
    return kind


def _fault_of(key: str, value: Any, kind: str, rule: dict[str, Any]) -> str | None:
    """What is wrong with one setting of a rope type."""
    default = rule["optional"].get(key, "required")
    if key != "rope_theta" and key not in rule["required"] and key not in rule["optional"]:
        return f"unknown to rope type {kind}, it might change the mathematics"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"{json.dumps(value)} is neither true nor false"
    if value is None and not isinstance(default, str):
        return None  # As good as absent.
    if not is_number(value) or value <= 0:
        return f"{json.dumps(value)} is not a number above zero"
    return None


def _numbers(config: dict[str, Any], spelling: str, kind: str, law: dict[str, Any]) -> dict:
    """The settings that a spelling comes to besides type and base, defaults filled in."""
    block = config.get(spelling) or {}
    numbers = {}
    for key, default in law["types"][kind]["optional"].items():
        numbers[key] = config.get(default) if isinstance(default, str) else default
    for key, value in block.items():
        if key not in ("rope_theta", *law["type_keys"], *law["fixed"]) and value is not None:
            numbers[key] = value
    return numbers


def _judge_agreement(
    config: dict[str, Any], kinds: dict[str, str], law: dict[str, Any], faults: list[str]
) -> None:
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
    told = [
        (kind, _numbers(config, spelling, kind, law))
        for spelling, kind in ((name, kinds.get(name, "default")) for name in SPELLINGS)
    ]
    if told[0] != told[1]:
        faults.append(
            "the two spellings of rope settings disagree: rope_scaling "
            f"{json.dumps(config['rope_scaling'])}, rope_parameters {json.dumps(new)}"
        )


def _record_defaults(
    config: dict[str, Any], kinds: dict[str, str], law: dict[str, Any], notes: list[str]
) -> None:
    """Writes into the config the base if no spelling gives one, and what another key stands for."""
    for spelling, kind in kinds.items():
        for key, default in law["types"][kind]["optional"].items():
            if isinstance(default, str) and key not in config[spelling]:
                config[spelling] = config[spelling] | {key: config.get(default)}
                notes.append(
                    f"{spelling}.{key} is absent: {default}, {config.get(default)}, is recorded"
                )
    if rope_settings(config)["rope_theta"] is not None:
        return
    owner = "rope_theta"
    if isinstance(config.get("rope_parameters"), dict):
        config["rope_parameters"] = config["rope_parameters"] | {"rope_theta": law["default_theta"]}
        owner = "rope_parameters.rope_theta"
    else:
        config["rope_theta"] = law["default_theta"]
    notes.append(f"{owner} is absent: the default {law['default_theta']} is recorded")
