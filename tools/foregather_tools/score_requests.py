# SPDX-License-Identifier: Apache-2.0
"""The tool score_requests: requests become a token file, a run's results their answers.

Decides the command line, what is told, and what an answer holds; the meaning of a request is
decided in request_windows.py.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .command_line import Refusal, Speaker, count, printable, run
from .documents import batches, check_files
from .part_file import check_output, new_file
from .request_lines import Request, read_requests
from .request_windows import RequestEncoder
from .responses import check_extension, read_responses, write_responses
from .scored_documents import ScoredDocuments, file_sha256, read_scored_documents
from .special_tokens import look_for_special
from .token_file import DTYPES, TokenFileWriter, check_dtype, check_room_for_text
from .vocabulary import Vocabulary, tokenizer_vocabulary

TOOL = "score_requests"
NO_TOKENIZER = (
    "give --tokenizer, or, if every request holds tokens, --vocab-size {vocab_size} in place of "
    "--weights"
)
KINDS = {False: "loglikelihood", True: "loglikelihood_rolling"}
STATUSES = (
    "Exit status: 0 done, 1 failed while running, 2 refused, nothing written. The output appears "
    "under its name only when it is whole."
)


def _pack_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of pack."""
    parser.add_argument("requests", metavar="REQUESTS.jsonl", type=Path, help="the requests")
    parser.add_argument("output", metavar="TOKENS.h5", type=Path, help="the token file to write")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokenizer", metavar="JSON", type=Path, help="a tokenizer.json")
    source.add_argument(
        "--weights", metavar="H5", type=Path, help="a weights file that holds a tokenizer"
    )
    source.add_argument(
        "--vocab-size",
        type=count,
        metavar="N",
        help="every request holds tokens: ids are 0 to N - 1",
    )
    parser.add_argument(
        "--rolling",
        action="store_true",
        help="requests are texts of their own, of which every token is scored "
        "(loglikelihood_rolling)",
    )
    parser.add_argument(
        "--max-length",
        type=count,
        metavar="N",
        help="the most tokens that the model is given to predict one from. What a context has "
        "more is cut from its beginning; a rolling text is cut into windows. A document has N + 1 "
        "tokens then. Default: the model's positions less one with --weights, else no limit",
    )
    parser.add_argument(
        "--prefix-id",
        type=int,
        metavar="ID",
        help="the token before what has no context (default: BOS, or EOS where there is no BOS)",
    )
    parser.add_argument(
        "--no-special-tokens",
        action="store_true",
        help="do not put the special tokens of the tokenizer's template around texts",
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, default="uint32", help="type of /tokens (default: uint32)"
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Scores continuations and whole texts as lm-evaluation-harness defines "
        "loglikelihood and loglikelihood_rolling: `pack` the requests, score the token file with "
        "foregather, `unpack` the answers. `responses` gives scores as padded batches.",
        epilog=STATUSES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=text, description=text, epilog=STATUSES, allow_abbrev=False
        )

    pack_parser = command(
        "pack",
        'Packs JSON lines {"id", "context", "continuation"} or {"id", "tokens", "score_from"} into '
        'a token file; with --rolling {"id", "text"} or {"id", "tokens"}.',
    )
    _pack_arguments(pack_parser)
    unpack_parser = command(
        "unpack",
        'Writes the answers, in the order of the requests: JSON lines {"id", "logprob" (sum, nat), '
        '"is_greedy" (was each scored token the most likely one), "tokens" (scored)}, of rolling '
        'texts also "bytes".',
    )
    for name, text in (
        ("requests", "the requests that were packed"),
        ("tokens", "the token file that they became"),
        ("results", "the results of its run"),
        ("output", "the answers to write"),
    ):
        metavar = {"requests": "REQUESTS.jsonl", "output": "ANSWERS.jsonl"}
        unpack_parser.add_argument(
            name, metavar=metavar.get(name, f"{name.upper()}.h5"), type=Path, help=text
        )
    responses_parser = command(
        "responses",
        "Writes what was scored of each document as [batch, response] arrays: logprobs, entropies "
        "(where the results hold them), responses (token ids), response_mask, and "
        "response_lengths, ids, temperature. Rows begin at the left, padding is 0.",
    )
    responses_parser.add_argument(
        "results", metavar="RESULTS.h5", type=Path, help="the results of a run"
    )
    responses_parser.add_argument(
        "tokens", metavar="TOKENS.h5", type=Path, help="its token file, packed or not"
    )
    responses_parser.add_argument(
        "output", metavar="OUT", type=Path, help="the file to write: .h5, or .npz for numpy"
    )
    responses_parser.add_argument(
        "--entropies", action="store_true", help="refuse results that hold no entropies"
    )
    for each in (pack_parser, unpack_parser, responses_parser):
        each.add_argument("--replace", action="store_true", help="replace the output if it exists")
    return parser


def _prefix(options: argparse.Namespace, vocabulary: Vocabulary) -> tuple[int, str] | None:
    """The token before what has no context and where it was found, None if it stands nowhere."""
    found = None
    if options.prefix_id is not None:
        found = options.prefix_id, "--prefix-id"
    elif vocabulary.encoder is not None:
        place = vocabulary.encoder, vocabulary.config or {}, vocabulary.beside
        found = look_for_special("bos", *place) or look_for_special("eos", *place)
    if found is not None and not 0 <= found[0] < vocabulary.size:
        raise Refusal(
            f"the prefix token {found[0]} ({found[1]}) is not in the vocabulary of "
            f"{vocabulary.size}: give another --prefix-id"
        )
    return found


def _max_length(options: argparse.Namespace, vocabulary: Vocabulary) -> int:
    """Tokens that the model may be given to predict one from, 0: any number. The one predicted has
    a position too, since the program gives the model whole documents.
    """
    positions = (vocabulary.config or {}).get("max_position_embeddings")
    if positions is None:
        return options.max_length or 0
    if options.max_length is not None and options.max_length >= positions:
        raise Refusal(
            f"--max-length {options.max_length} makes documents of {options.max_length + 1} "
            f"tokens, and the model has {positions} positions: give at most {positions - 1}"
        )
    return options.max_length or positions - 1


def _check_any(requests: Path, number: int, documents: int) -> None:
    """Refuses requests that became no document: the program would refuse the token file."""
    if documents == 0:
        raise Refusal(f"{requests} has no token to score: each of its {number} requests is empty")


def pack(options: argparse.Namespace) -> None:
    """Requests become a token file."""
    speaker = Speaker(TOOL)
    check_output(options.output, options.replace)
    size = check_files([options.requests])
    if options.vocab_size is not None:
        vocabulary = Vocabulary(options.vocab_size)
    else:
        vocabulary = tokenizer_vocabulary(options.tokenizer, options.weights, NO_TOKENIZER)
    check_dtype(options.dtype, vocabulary.size)
    check_room_for_text(options.output.parent, size, options.dtype)
    prefix = _prefix(options, vocabulary)
    if prefix is not None:
        speaker.say(f"the prefix token is {prefix[0]} ({prefix[1]})")
    encoder = RequestEncoder(
        vocabulary.size,
        vocabulary.encoder,
        prefix and prefix[0],
        _max_length(options, vocabulary),
        not options.no_special_tokens,
    )
    number = 0
    digest = file_sha256(options.requests)
    with TokenFileWriter(
        options.output,
        options.dtype,
        vocabulary.size,
        options.replace,
        ("score_from", "request"),
    ) as writer:
        for batch in batches(read_requests(options.requests, options.rolling)):
            for request, documents in zip(batch, encoder.documents(batch)):
                for part, document in enumerate(documents):
                    writer.add(
                        f"{request.id}#{part}" if options.rolling else str(request.id),
                        np.array(document.tokens, np.int64),
                        None,
                        score_from=document.score_from,
                        request=number,
                    )
                number += 1
            speaker.progress(lambda: f"{number} requests done, {writer.tokens} tokens")
        _check_any(options.requests, number, writer.documents)
        sha256 = writer.finish(
            printable(options.requests),
            vocabulary.sha256,
            requests_kind=KINDS[options.rolling],
            requests_sha256=digest,
        )
    if encoder.cut:
        speaker.say(
            f"{encoder.cut} requests are longer than {encoder.max_length} tokens and lost the "
            "beginning of their context"
        )
    print(
        f"{options.output}: {number} requests, {writer.documents} documents, {writer.tokens} "
        f"tokens, content_sha256 {sha256}"
    )


def _check_packed(options: argparse.Namespace, documents: ScoredDocuments) -> bool:
    """Refuses a token file that was not packed from the requests, and scores that are no
    log-likelihoods; gives whether they are rolling.
    """
    kind = documents.attributes.get("requests_kind")
    if documents.request is None or kind not in KINDS.values():
        raise Refusal(f"{options.tokens} was not made by `{TOOL} pack`")
    if documents.attributes.get("requests_sha256") != file_sha256(options.requests):
        raise Refusal(
            f"{options.requests} is not the file that {options.tokens} was packed from, or was "
            "changed since: give that file, or pack and score again"
        )
    if documents.temperature != 1:
        raise Refusal(
            f"{options.results} was scored at temperature {documents.temperature:g}: answers are "
            "log-likelihoods, so score with score.temperature = 1"
        )
    longest = int(np.diff(documents.offsets).max(initial=0))
    if 0 < documents.window < longest:
        raise Refusal(
            f"{options.results} was scored in windows of {documents.window} tokens, which takes "
            f"context from documents of {longest}: score with data.window = 0, and `{TOOL} pack "
            f"--max-length {documents.window - 1}` for shorter ones"
        )
    return kind == KINDS[True]


def answers(
    requests: Iterator[Request], documents: ScoredDocuments, rolling: bool
) -> Iterator[dict[str, Any]]:
    """The answer to each request, summed over its documents in double precision."""
    for number, request in enumerate(requests):
        first, last = np.searchsorted(documents.request, (number, number + 1))
        spans = [
            slice(begin, end)
            for begin, end in zip(documents.begins[first:last], documents.ends[first:last])
        ]
        answer = {
            "id": request.id,
            "logprob": float(sum(documents.logprob[span].sum(dtype=np.float64) for span in spans)),
            "is_greedy": all(bool(documents.greedy[span].all()) for span in spans),
            "tokens": int(sum(span.stop - span.start for span in spans)),
        }
        yield answer | ({"bytes": request.byte_count} if rolling and request.texts else {})


def unpack(options: argparse.Namespace) -> None:
    """Results become answers."""
    check_output(options.output, options.replace)
    check_files([options.requests])
    documents = read_scored_documents(options.tokens, options.results)
    rolling = _check_packed(options, documents)
    number = 0
    with new_file(options.output, options.replace) as stream:
        for answer in answers(read_requests(options.requests, rolling), documents, rolling):
            stream.write(json.dumps(answer, ensure_ascii=False).encode("utf-8") + b"\n")
            number += 1
    print(f"{options.output}: {number} answers, {documents.scored().size} scored tokens")


def responses(options: argparse.Namespace) -> None:
    """Results become padded batches."""
    check_output(options.output, options.replace)
    check_extension(options.output)
    found = read_responses(options.tokens, options.results, options.entropies)
    write_responses(options.output, found, options.replace)
    batch, width = found.logprobs.shape
    held = "with" if found.entropies is not None else "without"
    print(
        f"{options.output}: {batch} responses of at most {width} tokens, {held} entropies, at "
        f"temperature {float(found.temperature):g}"
    )


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    options = arguments().parse_args(argv)
    body = {"pack": pack, "unpack": unpack, "responses": responses}[options.command]
    return run(TOOL, lambda: body(options))
