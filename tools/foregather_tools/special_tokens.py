# SPDX-License-Identifier: Apache-2.0
"""Finds the id of BOS or EOS that the user asked to add.

Decides where it is looked for and in which order; never adds one by itself.
"""

import json
from pathlib import Path
from typing import Any

from .command_line import Refusal
from .text_encoder import TextEncoder


def find_special(
    kind: str,
    given: int | None,
    encoder: TextEncoder | None,
    config: dict[str, Any],
    beside: Path | None,
) -> tuple[int, str]:
    """The id of `kind` ("bos" or "eos") and where it was found: the option, or look_for_special().

    Refused if it stands nowhere.
    """
    option = f"--{kind}-id"
    if given is not None:
        return given, option
    found = look_for_special(kind, encoder, config, beside)
    if found is None:
        raise Refusal(f"--add-{kind}: which id that is stands nowhere: give {option}")
    return found


def look_for_special(
    kind: str, encoder: TextEncoder | None, config: dict[str, Any], beside: Path | None
) -> tuple[int, str] | None:
    """The id of `kind` ("bos" or "eos") and where it was found; None if it stands nowhere.

    In this order: bos_token_id in the weights file's config; bos_token in tokenizer_config.json
    beside the tokenizer.json; bos_token_id in config.json there; the template in the tokenizer.json
    itself. A list of several ids names none.
    """
    sources = [("the weights file's config", config)]
    if beside is not None:
        sources.append(("config.json beside the tokenizer", _read(beside / "config.json")))
        token = _read(beside / "tokenizer_config.json").get(f"{kind}_token")
        content = token.get("content") if isinstance(token, dict) else token
        number = encoder.id_of(content) if encoder and isinstance(content, str) else None
        if number is not None:
            sources.insert(
                1, ("tokenizer_config.json beside the tokenizer", {f"{kind}_token_id": number})
            )
    if encoder is not None:
        sources.append(
            ("the tokenizer's template", {f"{kind}_token_id": encoder.template_id(kind)})
        )
    for origin, holder in sources:
        number = holder.get(f"{kind}_token_id")
        if isinstance(number, int) and not isinstance(number, bool):
            return number, origin
    return None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object beside the tokenizer; an absent or malformed file says nothing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
