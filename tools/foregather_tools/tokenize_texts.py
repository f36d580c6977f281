# SPDX-License-Identifier: Apache-2.0
"""The tool tokenize: texts, JSON lines or lines of ids become a token file.

Decides the command line and what is told; documents, encoding, cutting and the file are decided in
their modules.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .command_line import Refusal, Speaker, count, human_bytes, printable, run
from .cutting import Cut, pieces
from .documents import batches, check_files, id_documents, json_documents, text_documents
from .part_file import check_output
from .special_tokens import find_special
from .token_file import DTYPES, TokenFileWriter, check_dtype, check_room_for_text
from .vocabulary import Vocabulary, tokenizer_vocabulary

TOOL = "tokenize"


def _shape_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what becomes of a document: BOS, EOS, cuts."""
    parser.add_argument(
        "--add-bos", action="store_true", help="begin documents with BOS, unless they do already"
    )
    parser.add_argument(
        "--add-eos", action="store_true", help="end documents with EOS, unless they do already"
    )
    parser.add_argument(
        "--bos-id", type=int, metavar="ID", help="which id BOS is, if it stands nowhere"
    )
    parser.add_argument(
        "--eos-id", type=int, metavar="ID", help="which id EOS is, if it stands nowhere"
    )
    parser.add_argument(
        "--max-tokens",
        type=count,
        metavar="N",
        default=0,
        help="keep the first N tokens of a document (BOS counts)",
    )
    parser.add_argument(
        "--split-tokens",
        type=count,
        metavar="N",
        default=0,
        help="cut documents (after --max-tokens) into pieces of at most N tokens, each a "
        "document of its own with its own BOS (which counts); EOS ends the last",
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        allow_abbrev=False,
        description="Makes a token file (HDF5) from texts. Each file is one document, unless "
        "--jsonl or --ids is given. Nothing is added to a document unless --add-bos or --add-eos "
        "is given.",
        epilog="Exit status: 0 done, 1 failed while running, 2 refused, nothing written. OUTPUT "
        "appears under its name only when it is whole; until then ids lie in unnamed temporary "
        "files in its folder.",
    )
    parser.add_argument("output", metavar="OUTPUT.h5", type=Path, help="the token file to write")
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="+", help="texts in UTF-8, JSON lines, or ids"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokenizer", metavar="JSON", type=Path, help="a tokenizer.json")
    source.add_argument(
        "--weights", metavar="H5", type=Path, help="a weights file that holds a tokenizer"
    )
    source.add_argument(
        "--ids",
        action="store_true",
        help="files hold whole numbers, one document a line (needs --vocab-size)",
    )
    parser.add_argument(
        "--jsonl", metavar="FIELD", help="files hold JSON lines; the text is in this field"
    )
    parser.add_argument(
        "--vocab-size", type=count, metavar="N", help="with --ids: ids are 0 to N - 1"
    )
    _shape_arguments(parser)
    parser.add_argument(
        "--dtype", choices=DTYPES, default="uint32", help="type of /tokens (default: uint32)"
    )
    parser.add_argument(
        "--max-document-bytes",
        type=count,
        metavar="N",
        default=32 * 1024 * 1024,
        help="refuse a longer document (default: 33554432, 32 MiB); one is held in memory whole, "
        "with about 100 times its size",
    )
    parser.add_argument("--replace", action="store_true", help="replace OUTPUT if it exists")
    return parser


def read_vocabulary(options: argparse.Namespace) -> Vocabulary:
    """The tokenizer that the command line names, or the bare size of a vocabulary."""
    if options.ids:
        if options.vocab_size is None or options.jsonl is not None:
            raise Refusal("--ids needs --vocab-size, and takes no --jsonl")
        return Vocabulary(options.vocab_size)
    if options.vocab_size is not None:
        raise Refusal("--vocab-size goes with --ids: a tokenizer knows its own")
    return tokenizer_vocabulary(options.tokenizer, options.weights)


def encoded(
    options: argparse.Namespace, vocabulary: Vocabulary, speaker: Speaker, total: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray | None, int | None]]:
    """Every document as name, ids, byte ends, bytes; texts are encoded some at a time."""
    limit = options.max_document_bytes
    if vocabulary.encoder is None:
        for name, ids in id_documents(options.files, limit):
            yield name, ids, None, None
        return
    if options.jsonl is not None:
        documents = json_documents(options.files, options.jsonl, limit)
    else:
        documents = text_documents(options.files, limit)
    cutting = bool(options.max_tokens or options.split_tokens)
    read = 0
    for batch in batches(documents):
        for document, (ids, ends) in zip(batch, vocabulary.encoder.encode(batch, cutting)):
            yield document.name, ids, ends, document.byte_count
        read += sum(document.byte_count for document in batch)
        speaker.progress(
            lambda: f"{human_bytes(read)} of text done, input has {human_bytes(total)}"
        )


def _cut(options: argparse.Namespace, vocabulary: Vocabulary, speaker: Speaker) -> Cut:
    """How documents are cut and completed, with the ids of BOS and EOS found and checked."""
    found: dict[str, int | None] = {"bos": None, "eos": None}
    for kind in found:
        given = getattr(options, f"{kind}_id")
        if not getattr(options, f"add_{kind}"):
            if given is not None:
                raise Refusal(f"--{kind}-id does nothing without --add-{kind}")
            continue
        number, origin = find_special(
            kind, given, vocabulary.encoder, vocabulary.config or {}, vocabulary.beside
        )
        if not 0 <= number < vocabulary.size:
            raise Refusal(
                f"--add-{kind}: id {number} ({origin}) is not in the vocabulary of "
                f"{vocabulary.size}"
            )
        found[kind] = number
        speaker.say(f"{kind.upper()} is {number} ({origin})")
    if options.add_bos and 1 in (options.max_tokens, options.split_tokens):
        raise Refusal(
            "a document of one token has no room beside its BOS: give a larger --max-tokens, "
            "--split-tokens"
        )
    return Cut(options.max_tokens, options.split_tokens, found["bos"], found["eos"])


def tokenize(options: argparse.Namespace) -> None:
    """Reads, encodes, cuts, writes."""
    speaker = Speaker(TOOL)
    check_output(options.output, options.replace)
    total = check_files(options.files)
    vocabulary = read_vocabulary(options)
    check_dtype(options.dtype, vocabulary.size)
    check_room_for_text(options.output.parent, total, options.dtype)
    cut = _cut(options, vocabulary, speaker)
    began = 0
    with TokenFileWriter(options.output, options.dtype, vocabulary.size, options.replace) as writer:
        for name, ids, ends, byte_count in encoded(options, vocabulary, speaker, total):
            began += cut.bos is not None and len(ids) > 0 and ids[0] == cut.bos
            for number, (piece, size) in enumerate(pieces(cut, ids, ends, byte_count)):
                writer.add(f"{name}#{number}" if cut.split_tokens else name, piece, size)
        if began:
            speaker.say(f"{began} documents began with BOS already and got no second one")
        sha256 = writer.finish(
            ", ".join(printable(file) for file in options.files[:16]), vocabulary.sha256
        )
    print(
        f"{options.output}: {writer.documents} documents, {writer.tokens} tokens, content_sha256 "
        f"{sha256}"
    )


def main(argv: Sequence[str]) -> int:
    """Entry: gives the exit status."""
    options = arguments().parse_args(argv)
    return run(TOOL, lambda: tokenize(options))
