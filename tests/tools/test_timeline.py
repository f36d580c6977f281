# SPDX-License-Identifier: Apache-2.0
"""timeline shows the spans of a results file as they are, in a picture and in a trace.

Decides what must be in the outputs; how the picture looks to the eye is judged by eyes.
"""

import json
import re
from dataclasses import replace

import h5py
import numpy as np
import pytest
from conftest import ROOT  # noqa: F401 - puts tools/ on the path
from foregather_tools import timeline
from foregather_tools.spans import Span, overlap_ns
from results_files import COMPUTE, GATHER, UNITS, spans, write_results


@pytest.fixture
def trace(tool, tmp_path):
    """trace(words, **file) gives the events of a results file's trace."""

    def make(*words, **file):
        path = write_results(tmp_path / "r.h5", **file)
        said = tool("timeline", path, "--trace", tmp_path / "t.json", *words, "--replace")
        assert said.status == 0, said.err
        return json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]

    return make


def of_kind(events, phase):
    """The events of a phase."""
    return [event for event in events if event["ph"] == phase]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_span_is_an_event_with_its_times_in_microseconds(trace, depth):
    found = of_kind(trace(depth=depth), "X")
    rows = spans(depth)
    assert len(found) == len(rows)
    for event, row in zip(found, rows):
        assert event["ts"] == row["begin_ns"] / 1000
        assert event["ts"] + event["dur"] == pytest.approx(row["end_ns"] / 1000, abs=1e-6)
        assert event["pid"] == row["rank"] and event["args"]["slot"] == row["slot"]
        waits = row["kind"] == "wait"
        assert event["name"] == (f"exposed: waits for {row['unit']}" if waits else row["unit"])
    gather = next(event for event in found if event["cat"] == "gather")
    assert gather["args"]["bytes_received"] == 1000
    assert gather["args"]["Gb_per_s"] == pytest.approx(8 * 1000 / GATHER)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_gather_flows_to_the_compute_of_its_unit(trace, depth):
    events = trace(depth=depth)
    starts = {event["id"]: event for event in of_kind(events, "s")}
    ends = {event["id"]: event for event in of_kind(events, "f")}
    gathers = [event for event in of_kind(events, "X") if event["cat"] == "gather"]
    computes = [event for event in of_kind(events, "X") if event["cat"] == "compute"]
    assert len(starts) == len(ends) == len(gathers) == 2 * 2 * len(UNITS)
    for number, start in starts.items():
        end = ends[number]
        (source,) = [
            event
            for event in gathers
            if event["pid"] == start["pid"]
            and event["tid"] == start["tid"]
            and event["ts"] <= start["ts"] < event["ts"] + event["dur"]
        ]
        (target,) = [
            event
            for event in computes
            if (event["pid"], event["tid"], event["ts"]) == (end["pid"], end["tid"], end["ts"])
        ]
        assert end["bp"] == "e" and source["pid"] == target["pid"]
        assert source["name"] == target["name"]
        assert source["args"]["pass"] == target["args"]["pass"]


def test_a_unit_that_is_still_in_its_slot_flows_from_the_gather_that_brought_it(trace):
    rows = [row for row in spans(1) if row["rank"] == 0 and row["pass"] == 0]
    last = max(rows, key=lambda row: row["sequence"])
    again = last | {"sequence": last["sequence"] + 1, "begin_ns": last["end_ns"]}
    again |= {"end_ns": last["end_ns"] + COMPUTE, "direction": "backward"}
    ends = of_kind(trace(rows=[*rows, again]), "f")
    assert len(ends) == len(UNITS) + 1 and ends[-1]["ts"] == again["begin_ns"] / 1000


def test_nothing_flows_over_passes_that_were_not_kept(trace):
    rows = [row for row in spans(1, passes=5) if row["rank"] == 0 and row["pass"] != 2]
    dropped = [row for row in rows if not (row["pass"] == 3 and row["kind"] == "gather")]
    assert len(of_kind(trace(rows=rows), "s")) == 4 * len(UNITS)
    assert len(of_kind(trace(rows=dropped), "s")) == 3 * len(UNITS)


def test_a_slot_that_holds_another_unit_is_no_source(trace):
    absent = ("gather", "layer.1", 0)
    rows = [row for row in spans(1) if (row["kind"], row["unit"], row["pass"]) != absent]
    assert len(of_kind(trace(rows=rows), "s")) == 2 * (2 * len(UNITS) - 1)


def test_overlapping_spans_are_counted_once():
    row = Span(0, "compute", "wait", "layer.0", 0, 0, "forward", 0, 0, 0, 0, 0, 0)
    waits = [replace(row, begin=begin, end=end) for begin, end in ((0, 10), (5, 20), (30, 99))]
    other = replace(row, kind="compute", begin=0, end=99)
    assert overlap_ns([*waits, other], "wait", 2, 40) == 18 + 10


def test_ranks_are_processes_and_streams_are_threads_with_names(trace):
    names = of_kind(trace(), "M")
    processes = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in names if e["name"] == "thread_name"}
    assert processes == {0: "rank 0 on n0", 1: "rank 1 on n1"}
    assert threads == {(r, t): n for r in (0, 1) for t, n in enumerate(("gather", "compute"))}


def test_passes_and_ranks_can_be_chosen(trace):
    found = of_kind(trace("--passes", "1:2", "--ranks", "1", rows=spans(1, passes=4)), "X")
    assert {event["args"]["pass"] for event in found} == {1, 2}
    assert {event["pid"] for event in found} == {1}


@pytest.fixture
def picture(tool, tmp_path):
    """picture(words, **file) gives the SVG of a results file; the PNG is made too."""

    def make(*words, **file):
        path = write_results(tmp_path / "r.h5", **file)
        outputs = ("--png", tmp_path / "t.png", "--svg", tmp_path / "t.svg")
        said = tool("timeline", path, *outputs, *words, "--replace")
        assert said.status == 0, said.err
        assert (tmp_path / "t.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        return (tmp_path / "t.svg").read_text(encoding="utf-8")

    return make


def texts(svg):
    """What can be read in a picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_picture_names_units_and_hatches_waits_and_draws_arrows(picture):
    svg = picture("--passes", "0", depth=0)
    read = texts(svg)
    for unit in UNITS:
        assert unit in read
        assert f"rank0-pass0-gather-{unit}-" in svg and f"rank1-pass0-compute-{unit}-" in svg
    assert "<pattern" in svg and "400 µs" in read
    hatched = re.findall(r'id="rank(?:[^"]*)-wait-[^"]*">\s*<path [^>]*fill: url\(#h', svg)
    assert len(hatched) == 2 * len(UNITS)
    ids = re.findall(r'id="(rank[^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert len([name for name in ids if "-flow-" in name]) == 2 * len(UNITS)
    assert len([name for name in ids if "-wait-" in name]) == 2 * len(UNITS)
    assert read.count("gather") == read.count("compute") == 2
    assert "gather to the compute that used it" in read and "time in ms" in read


def test_heading_tells_the_run_and_what_is_shown(picture):
    read = " ".join(texts(picture(depth=1, exposed=1.25)))
    assert "a tiny run, très court" in read and "depth 1" in read and "verdict observed" in read
    assert "exposed 1.25 s, overlapped 250 ms" in read
    assert "shown: passes 0-1 of 2, counted from 0; ranks 0-1 of 2." in read
    assert "emulated" not in read
    slow = " ".join(texts(picture(link_rate=1.25e8)))
    assert "emulated link: comm.link_rate slowed gathers to 1 Gb/s" in slow


def test_share_of_the_shown_time_that_was_exposed_is_told_for_each_rank(picture):
    # At depth 0 each use is 0.4 ms of waiting and 1 ms of computing.
    total = 2 * len(UNITS) * (GATHER + COMPUTE) / 1e6
    said = f"exposed 3.20 ms of the {total:.1f} ms shown (29 %)"
    assert texts(picture(depth=0)).count(said) == 2


def test_long_runs_show_the_last_passes_that_are_legible(picture):
    read = " ".join(texts(picture(rows=spans(1, passes=40))))
    assert "shown: passes 24-39 of 40" in read
    read = " ".join(texts(picture("--passes", "3", rows=spans(1, passes=40))))
    assert "shown: pass 3 of 40" in read


def test_nothing_gathered_is_said_and_drawn_without_a_row_for_it(picture):
    rows = [row | {"slot": -1} for row in spans(1) if row["kind"] == "compute"]
    read = texts(picture(rows=rows))
    assert read.count("weights are read in place, nothing is gathered") == 2
    assert "gather" not in read


def test_part_that_a_killed_tool_left_is_written_over(picture, tmp_path):
    (tmp_path / "t.svg.part").write_text("junk" * 200_000)
    assert "junk" not in picture() and not (tmp_path / "t.svg.part").exists()


def test_same_file_gives_the_same_picture(picture):
    assert picture() == picture()


def test_file_without_spans_is_refused_and_the_key_named(tool, tmp_path):
    path = write_results(tmp_path / "r.h5", rows=[], output__timeline="false")
    said = tool("timeline", path, "--png", tmp_path / "t.png", "--trace", tmp_path / "t.json")
    assert said.status == 2 and said.err.count("\n") == 1
    assert "no spans" in said.err and "output.timeline = true" in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["r.h5"]


@pytest.mark.parametrize(("before", "told"), [(3, "was resumed when every pack"), (2, "run with")])
def test_resumed_run_without_spans_is_told_to_have_had_nothing_to_do(tool, tmp_path, before, told):
    path = write_results(tmp_path / "r.h5", rows=[])
    with h5py.File(path, "r+") as file:
        file["provenance/packs_done"] = np.ones(3, "u1")
        file["provenance/runs/packs_before"] = [0, before]
    said = tool("timeline", path, "--png", tmp_path / "t.png")
    assert said.status == 2 and said.err.count("\n") == 1 and told in said.err
    assert ("run with output.timeline" in said.err) == (before < 3)


def test_reversed_passes_are_refused(capsys, tmp_path):
    words = [str(write_results(tmp_path / "r.h5")), "--png", str(tmp_path / "t.png")]
    with pytest.raises(SystemExit) as ended:
        timeline.main([*words, "--passes", "3:1"])
    assert ended.value.code == 2 and "'3:1' is reversed: give 1:3" in capsys.readouterr().err


def test_rank_that_is_named_twice_is_drawn_once(picture):
    svg = picture("--ranks", "0,0")
    assert texts(svg).count("rank 0") == 1 and svg == picture("--ranks", "0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--passes", "7:9"), "kept the spans of passes 0-1 only"),
        (("--ranks", "0,5"), "has no spans of rank 5, only of 0-1"),
        (("--png", "{}/no/t.png"), "does not exist"),
        (("--png", "{}/r.h5", "--replace"), "is the results file itself"),
        (("--png", "{}/t.json"), "two outputs have the same name"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(tool, tmp_path, words, message):
    path = write_results(tmp_path / "r.h5")
    words = [word.format(tmp_path) for word in words]
    said = tool("timeline", path, "--trace", tmp_path / "t.json", *words)
    assert said.status == 2 and message in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["r.h5"]


def test_existing_output_is_refused_unless_replaced(tool, tmp_path):
    path, out = write_results(tmp_path / "r.h5"), tmp_path / "t.svg"
    out.write_text("precious")
    said = tool("timeline", path, "--svg", out)
    assert said.status == 2 and "--replace" in said.err and out.read_text() == "precious"


def test_failure_while_drawing_leaves_no_file(tool, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("the disk went away")

    monkeypatch.setattr("foregather_tools.timeline.draw", fail)
    path = write_results(tmp_path / "r.h5")
    said = tool("timeline", path, "--png", tmp_path / "t.png")
    assert said.status == 1 and "went away" in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["r.h5"]


def test_training_is_drawn_in_both_directions_with_its_reductions(tool, trace, tmp_path):
    rows = []
    for row in spans(1, passes=1, ranks=1):
        rows += [row | {"step": 1}]
    now = max(row["end_ns"] for row in rows)
    for number, unit in enumerate(reversed(UNITS)):
        common = {"rank": 0, "direction": "backward", "issued_ns": now, "pass": 0, "step": 1}
        common |= {"unit": unit, "slot": number % 2, "bytes": 0}
        begin = now + number * COMPUTE
        compute = {"stream": "compute", "kind": "compute", "sequence": 100 + number}
        rows.append(common | compute | {"begin_ns": begin, "end_ns": begin + COMPUTE})
        reduce = {"stream": "reduce", "kind": "reduce", "sequence": number, "bytes": 500}
        times = {"begin_ns": begin + COMPUTE, "end_ns": begin + COMPUTE + GATHER}
        rows.append(common | reduce | times)
    found = of_kind(trace(rows=rows), "X")
    assert sum(event["cat"] == "reduce" for event in found) == len(UNITS)
    path = write_results(tmp_path / "t.h5", rows=rows)
    said = tool("timeline", path, "--svg", tmp_path / "t.svg")
    assert said.status == 0, said.err
    drawn = (tmp_path / "t.svg").read_text(encoding="utf-8")
    assert ">reduce<" in drawn and "backward" in drawn


@pytest.fixture
def both(tool, tmp_path):
    """both(words) gives the SVG of runs at depths 0 and 1, one above the other."""

    def make(*words, title=None):
        files = [write_results(tmp_path / f"d{depth}.h5", depth=depth) for depth in (0, 1)]
        if title:
            with h5py.File(files[1], "r+") as file:
                file.attrs["title"] = np.bytes_(title.encode())
        said = tool("timeline", *files, "--svg", tmp_path / "t.svg", *words, "--replace")
        assert said.status == 0, said.err
        return (tmp_path / "t.svg").read_text(encoding="utf-8"), said.out

    return make


def bars(svg, run, kind):
    """Left and right edges of a run's bars of a kind, as they stand on the page."""
    found = []
    for path in re.findall(rf'id="run{run}-rank0-[^"]*-{kind}-[^"]*">\s*<path d="([^"]*)"', svg):
        xs = [float(x) for x in re.findall(r"[ML] ([-\d.]+) ", path)]
        found.append((min(xs), max(xs)))
    return sorted(found)


def test_several_runs_stand_one_above_the_other_on_one_scale(both):
    svg, said = both("--passes", "1", "--ranks", "0")
    read = texts(svg)
    assert any(text.startswith("depth 0: 5.60 ms for pass 1") for text in read)
    assert any(text.startswith("depth 1: 4.00 ms for pass 1") for text in read)
    assert "2 runs, pass 1, rank 0" in said and read.count("a tiny run, très court") == 1
    lengths = [right - left for run in (0, 1) for left, right in bars(svg, run, "compute")]
    assert len(lengths) == 2 * len(UNITS)
    assert max(lengths) - min(lengths) < 0.01  # Every compute takes 1 ms: the scale is one.
    for run in (0, 1):  # Both begin where computing comes to the pass: at depth 1 with the compute.
        starts = bars(svg, run, "compute") + bars(svg, run, "wait")
        assert min(starts)[0] == pytest.approx(min(bars(svg, 0, "wait"))[0], abs=0.01)
    assert min(bars(svg, 1, "gather"))[0] < min(bars(svg, 1, "compute"))[0]
    assert len(bars(svg, 0, "wait")) == len(UNITS) and not bars(svg, 1, "wait")


def test_names_of_marks_in_several_runs_are_different(both):
    svg, _ = both()
    ids = re.findall(r'id="(run[^"]*)"', svg)
    assert ids and len(ids) == len(set(ids))
    assert texts(svg).count("rank 0") == texts(svg).count("rank 1") == 2


def test_titles_of_several_runs_are_all_told(both):
    assert "a tiny run, très court / another" in texts(both(title="another")[0])


def test_trace_of_several_runs_is_refused(tool, tmp_path):
    files = [write_results(tmp_path / f"d{depth}.h5", depth=depth) for depth in (0, 1)]
    said = tool("timeline", *files, "--trace", tmp_path / "t.json")
    assert said.status == 2 and "--trace is of one run" in said.err
    said = tool("timeline", *files, "--png", files[1], "--replace")
    assert said.status == 2 and "is the results file itself" in said.err
