# SPDX-License-Identifier: Apache-2.0
"""Spans as a trace in Chrome's event format, which ui.perfetto.dev and chrome://tracing load.

Decides the events: a process for each rank, a thread for each stream, a flow from each gather to
the computes that used it.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from .spans import Span, flows

STREAMS = ("gather", "compute", "reduce")


def stream_order(spans: Sequence[Span]) -> list[str]:
    """The streams that occur, gather above compute as weights flow, others after them."""
    found = {span.stream for span in spans}
    return [s for s in STREAMS if s in found] + sorted(found - set(STREAMS))


def _us(nanoseconds: int) -> float:
    """Microseconds, the format's unit, exact to the nanosecond."""
    return round(nanoseconds / 1000, 3)


def _names(spans: Sequence[Span], streams: list[str], hosts: dict[int, str]) -> Iterator[dict]:
    """Metadata: what processes and threads are called, and their order."""
    for rank in sorted({span.rank for span in spans}):
        label = f"rank {rank}" + (f" on {hosts[rank]}" if rank in hosts else "")
        yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": label}}
        yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}}
        for thread, stream in enumerate(streams):
            of_thread = {"ph": "M", "pid": rank, "tid": thread}
            yield of_thread | {"name": "thread_name", "args": {"name": stream}}
            yield of_thread | {"name": "thread_sort_index", "args": {"sort_index": thread}}


def _complete(span: Span, thread: int) -> dict[str, Any]:
    """A span as an event with begin and duration."""
    facts = {
        "unit": span.unit,
        "pass": span.pass_,
        "step": span.step,
        "direction": span.direction,
        "sequence": span.sequence,
        "slot": span.slot,
        "issued_us": _us(span.issued),
    }
    if span.bytes:
        facts["bytes_received"] = span.bytes
        facts["Gb_per_s"] = round(8 * span.bytes / max(span.end - span.begin, 1), 4)
    exposed = span.kind == "wait"
    return {
        "ph": "X",
        "name": f"exposed: waits for {span.unit}" if exposed else span.unit,
        "cat": "exposed" if exposed else span.kind,
        "pid": span.rank,
        "tid": thread,
        "ts": _us(span.begin),
        "dur": _us(span.end - span.begin),
        "args": facts,
    } | ({"cname": "terrible"} if exposed else {})


def events(spans: Sequence[Span], hosts: dict[int, str]) -> Iterator[dict[str, Any]]:
    """All events of the trace."""
    streams = stream_order(spans)
    threads = {stream: thread for thread, stream in enumerate(streams)}
    yield from _names(spans, streams, hosts)
    for span in spans:
        yield _complete(span, threads[span.stream])
    for number, (gather, compute) in enumerate(flows(spans)):
        arrow = {"name": "weights", "cat": "weights", "id": number}
        # A flow begins in the slice that encloses its time, so a nanosecond before the end.
        leaves = max(gather.begin, gather.end - 1)
        yield arrow | {
            "ph": "s",
            "pid": gather.rank,
            "tid": threads[gather.stream],
            "ts": _us(leaves),
        }
        yield arrow | {
            "ph": "f",
            "bp": "e",
            "pid": compute.rank,
            "tid": threads[compute.stream],
            "ts": _us(compute.begin),
        }


def write_trace(
    file: BinaryIO, spans: Sequence[Span], hosts: dict[int, str], about: dict[str, str]
) -> None:
    """Writes the trace, one event a line; `about` is told beside the events."""
    file.write(b'{"displayTimeUnit": "ms",\n"otherData": ')
    file.write(json.dumps(about, ensure_ascii=False).encode("utf-8"))
    file.write(b',\n"traceEvents": [')
    for number, event in enumerate(events(spans, hosts)):
        file.write((",\n" if number else "\n").encode())
        file.write(json.dumps(event, ensure_ascii=False).encode("utf-8"))
    file.write(b"\n]}\n")
