# SPDX-License-Identifier: Apache-2.0
"""Turns scoring requests into documents: what the model is given and which of its tokens count.

Decides the meaning of loglikelihood and loglikelihood_rolling, as lm-evaluation-harness 0.4
defines them for causal models; not how requests are read and documents are written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .command_line import Refusal
from .request_lines import Request
from .text_encoder import TextEncoder


@dataclass(frozen=True)
class ScoredDocument:
    """Tokens of a document; those from `score_from` on are scored."""

    tokens: Sequence[int]
    score_from: int


@dataclass
class RequestEncoder:
    """Makes documents of requests, of ids below `vocab_size`. `prefix` stands before what has no
    context, None if no such token is known. `max_length` is the most tokens that the model may be
    given to predict one from, 0: any number. `template`: texts get the special tokens of the
    tokenizer's template.
    """

    vocab_size: int
    encoder: TextEncoder | None
    prefix: int | None
    max_length: int
    template: bool = True
    cut: int = 0  # Requests that lost the beginning of their context.

    def documents(self, requests: list[Request]) -> Iterator[list[ScoredDocument]]:
        """The documents of each request: one, or the windows of a rolling request (none of an empty
        one).
        """
        texts = [text for request in requests for text in _texts_to_encode(request)]
        if texts and self.encoder is None:
            place = next(request.place for request in requests if request.texts)
            raise Refusal(f"{place} holds text: give --tokenizer or --weights, not --vocab-size")
        found = iter(self._encode(texts))
        for request in requests:
            rows = [next(found) for _ in _texts_to_encode(request)]
            self._check_tokens(request)
            if len(request.texts) == 2:
                context, continuation = self._pair(request, rows)
                yield [self._fitted(request.place, context, continuation)]
            elif request.score_from:
                tokens, start = request.tokens, request.score_from
                yield [self._fitted(request.place, tokens[:start], tokens[start:])]
            else:
                tokens = rows[0] if rows else request.tokens
                prefix = self._needed_prefix(request.place)
                yield list(rolling_windows(tokens, prefix, self.max_length))

    def _check_tokens(self, request: Request) -> None:
        """Refuses given ids that are not in the vocabulary."""
        bad = [token for token in request.tokens if not 0 <= token < self.vocab_size]
        if bad:
            raise Refusal(
                f"{request.place}: tokens holds {bad[0]}, but ids are 0 to {self.vocab_size - 1}"
            )

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of texts, the template's special tokens with them, unless a text begins with the
        prefix token's own text. A text that follows nothing but the prefix comes as it is.
        """
        if not texts:
            return []
        start = None if self.prefix is None else self.encoder.text_of(self.prefix)
        with_template = [self.template and not (start and text.startswith(start)) for text in texts]
        rows = {
            kind: iter(
                self.encoder.encode_texts(
                    [t for t, w in zip(texts, with_template) if w == kind], kind
                )
            )
            for kind in (True, False)
        }
        return [next(rows[kind]) for kind in with_template]

    def _pair(self, request: Request, rows: list[list[int]]) -> tuple[list[int], list[int]]:
        """Ids of context and continuation: the continuation is what the whole has beyond as many
        ids as the context has alone.
        """
        if not request.texts[0]:
            # Nothing precedes the text, so the prefix does, and the template's tokens do not.
            (continuation,) = self.encoder.encode_texts([request.texts[1]], False)
            prefix = self._needed_prefix(request.place)
            if continuation[:1] == [prefix]:
                return continuation[:1], continuation[1:]
            return [prefix], continuation
        whole, context = rows
        continuation = whole[len(context) :]
        return context or [self._needed_prefix(request.place)], continuation

    def _fitted(self, place: str, context: Sequence[int], continuation: Sequence[int]):
        """Context and continuation as one document, cut from the left to what the model takes: the
        last token is predicted, never given.
        """
        if not continuation:
            raise Refusal(
                f"{place}: the continuation has no token of its own after its context: give it as "
                "tokens and score_from, or leave it out"
            )
        if self.max_length and len(continuation) > self.max_length:
            raise Refusal(
                f"{place}: the continuation has {len(continuation)} tokens, the model is given at "
                f"most {self.max_length}: raise --max-length, or use --rolling"
            )
        tokens = [*context, *continuation]
        if self.max_length and len(tokens) > self.max_length + 1:
            tokens = tokens[-(self.max_length + 1) :]
            self.cut += 1
        return ScoredDocument(tokens, len(tokens) - len(continuation))

    def _needed_prefix(self, place: str) -> int:
        """The prefix token; refused where none is known."""
        if self.prefix is None:
            raise Refusal(
                f"{place} needs a token before its first, and which one stands nowhere: give "
                "--prefix-id"
            )
        return self.prefix


def _texts_to_encode(request: Request) -> tuple[str, ...]:
    """The texts of a request whose ids are needed: whole and context, or the text itself. Blanks at
    the end of a context belong to the continuation: many tokens begin with them, few end so.
    """
    if len(request.texts) < 2:
        return request.texts
    context, continuation = request.texts
    return (context + continuation, context.rstrip()) if context else ()


def rolling_windows(
    tokens: Sequence[int], prefix: int, max_length: int
) -> Iterator[ScoredDocument]:
    """Windows in which every token is scored once, the first after the prefix. Each scores
    max_length tokens (0: all); the last has fewer, and more context for it, so that it is as long.
    """
    row = [prefix, *tokens]
    length = max_length or len(tokens)
    for done in range(0, len(tokens), length or 1):
        end = min(done + length, len(tokens))
        begin = max(0, end - length)
        yield ScoredDocument(row[begin : end + 1], done + 1 - begin)
