# SPDX-License-Identifier: Apache-2.0
"""Reads scoring requests out of a file of JSON lines, one at a time.

Decides which fields a request has and refuses malformed ones with file and line; what is scored of
a request is decided in request_windows.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .command_line import Refusal
from .documents import byte_count, json_lines

# Longer lines are taken for a mistake: a request is held in memory whole.
LINE_BYTES = 32 * 1024 * 1024
WAYS = {
    False: '{"id", "context", "continuation"} or {"id", "tokens", "score_from"}',
    True: '{"id", "text"} or {"id", "tokens"}',
}


@dataclass(frozen=True)
class Request:
    """One request. `texts`: context and continuation, or the one text of a rolling request; empty
    where `tokens` are given. `score_from` is the first token to be scored, of a request of tokens
    that is not rolling.
    """

    place: str
    id: str | int
    texts: tuple[str, ...]
    tokens: tuple[int, ...] = ()
    score_from: int = 0
    byte_count: int = 0


def read_requests(file: Path, rolling: bool) -> Iterator[Request]:
    """The requests of a file in its order; refused if two have the same id, written as text."""
    seen: dict[str, str] = {}
    for place, value in json_lines(file, LINE_BYTES):
        request = _request(place, value, rolling)
        first = seen.setdefault(str(request.id), place)
        if first != place:
            raise Refusal(f"{place}: id {request.id!r} is that of {first} too: give each its own")
        yield request
    if not seen:
        raise Refusal(f"{file} holds no request: give JSON lines {WAYS[rolling]}")


def _request(place: str, value: Any, rolling: bool) -> Request:
    """The request that the value of a line is."""
    if not isinstance(value, dict):
        raise Refusal(f"{place} holds no object: a request is {WAYS[rolling]}")
    name = value.get("id")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise Refusal(f"{place} has no id: give each request a text or a whole number as its id")
    byte_count(place, "id", str(name))
    fields = ("text",) if rolling else ("context", "continuation")
    held = [field for field in fields if field in value]
    if "tokens" in value and not held:
        return _token_request(place, name, value, rolling)
    if held != list(fields) or "tokens" in value:
        turn = _other_kind(value, rolling)
        raise Refusal(f"{place} does not hold what a request is made of: {WAYS[rolling]}{turn}")
    texts = tuple(value[field] for field in fields)
    for field, text in zip(fields, texts):
        if not isinstance(text, str):
            raise Refusal(f"{place}: {field} is no text")
    if not rolling and not texts[1]:
        raise Refusal(
            f"{place}: the continuation is empty: there is nothing to score, leave it out"
        )
    size = sum(byte_count(place, field, text) for field, text in zip(fields, texts))
    return Request(place, name, texts, byte_count=size)


def _other_kind(value: dict[str, Any], rolling: bool) -> str:
    """What to do if the line is a request of the other kind."""
    if not rolling and "text" in value:
        return "; for a text of its own give --rolling"
    if rolling and "continuation" in value:
        return "; for a continuation leave --rolling out"
    return ""


def _token_request(place: str, name: str | int, value: dict[str, Any], rolling: bool) -> Request:
    """A request of ids; whether they are in the vocabulary is not known here."""
    tokens = value["tokens"]
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise Refusal(f"{place}: tokens is no list of whole numbers")
    if rolling:
        if "score_from" in value:
            raise Refusal(f"{place}: a rolling request scores every token: leave score_from out")
        return Request(place, name, (), tuple(tokens))
    if len(tokens) < 2:
        raise Refusal(
            f"{place}: a request of tokens needs at least 2 tokens: the first has nothing before "
            "it, and one must be scored"
        )
    start = value.get("score_from")
    if start is None:
        raise Refusal(
            f"{place}: score_from is missing: give the first token to be scored, 1 to "
            f"{len(tokens) - 1}"
        )
    if type(start) is not int or not 1 <= start < len(tokens):
        raise Refusal(
            f"{place}: score_from is {start!r}, but must be 1 to {len(tokens) - 1} for "
            f"{len(tokens)} tokens: the first token has nothing before it, and one must be scored"
        )
    return Request(place, name, (), tuple(tokens), start)
