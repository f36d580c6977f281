# SPDX-License-Identifier: Apache-2.0
"""What the program's sources do in order to order memory, taken away or done otherwise: each change
must be noticed.

Decides that no wait, record or drain can go unnoticed, nor the changes below, which are those that
an executor of a schedule can get wrong. Where such statements are, a pattern finds; a new one is a
new test.
"""

import pytest
from emulated_runs import OnGpus
from mutants import Builder, Change, Situation, Trial, noticed, said, sites
from run_foregather import Foregather

PREFETCHER = "src/schedule/prefetcher.cpp"
STAGED = "src/schedule/staged_parts.cpp"
SOURCE = "src/schedule/source.cpp"
SCHEDULE = "src/schedule/schedule.cpp"
LOOP = "src/job/pass_loop.cpp"
PACK_BUFFERS = "src/job/pack_buffers.cpp"
HOST_SIDE = (LOOP, PACK_BUFFERS)  # What is wrong there need not be a race of streams.
GIVEN_BACK = "        staged_->given_back(gather_stream_);\n"
BEGIN_GATHER = "    e.gather.begin->record(gather_stream_);\n"
BEGIN_COMPUTE = "    e.compute.begin->record(compute);\n"
END_COMPUTE = "    entry(use_).compute.end->record(compute);\n"
DONE = "    f.done->record(compute);\n"
OTHER_STREAM = 'static const auto other = device.stream("other", device::Priority::normal);'

OTHERWISE = [
    Change("a compute reads another slot", PREFETCHER,
           (("return slot_memory(step.slot,", "return slot_memory((step.slot + 1) % slots(),"),)),
    Change("a gather writes to another slot", PREFETCHER,
           (("full = slot_memory(step.slot,", "full = slot_memory((step.slot + 1) % slots(),"),)),
    Change("a compute waits for the gather's begin", PREFETCHER,
           (("compute.wait(*entry(slot.gathered_for).gather.end)",
             "compute.wait(*entry(slot.gathered_for).gather.begin)"),)),
    Change("a gather waits for the begin of its slot's last use", PREFETCHER,
           (("gather_stream_.wait(*e.slot_used->end)",
             "gather_stream_.wait(*e.slot_used->begin)"),)),
    Change("a gather waits for the use before the slot's last", PREFETCHER,
           (("e.slot_used = &entry(slot.last_use).compute",
             "e.slot_used = &entry(std::max<std::int64_t>(slot.last_use - 1, 0)).compute"),)),
    Change("a slot is free before the work of its use", SOURCE,
           ((BEGIN_COMPUTE, BEGIN_COMPUTE + END_COMPUTE.replace("entry(use_)", "e")),
            (END_COMPUTE + "    device_.end_range", "    device_.end_range"))),
    Change("a gather's end is recorded before the gather", PREFETCHER,
           ((BEGIN_GATHER, BEGIN_GATHER + BEGIN_GATHER.replace("begin", "end")),
            (BEGIN_GATHER.replace("begin", "end") + "    if", "    if"))),
    Change("a gather runs on a stream of its own", PREFETCHER,
           (('std::to_string(use),\n                             gather_stream_);',
             'std::to_string(use),\n                             *other);'),
            (BEGIN_GATHER, BEGIN_GATHER + OTHER_STREAM.replace("device.", "this->device().")))),
    Change("a part is read from the other stage", STAGED,
           (("return stage(taken_,", "return stage(taken_ + 1,"),)),
    Change("a part is copied to the other stage", STAGED,
           (("to = stage(brought_,", "to = stage(brought_ + 1,"),)),
    Change("a copy waits for the other stage", STAGED,
           (("*stage_free_[static_cast<std::size_t>(brought_ % 2)]",
             "*stage_free_[static_cast<std::size_t>((brought_ + 1) % 2)]"),)),
    Change("a gather waits for its part's begin", STAGED,
           (("gather.wait(*mine.end)", "gather.wait(*mine.begin)"),)),
    Change("a stage is given back before its gather", PREFETCHER,
           ((BEGIN_GATHER, "    if (staged_) {\n" + GIVEN_BACK + "    }\n" + BEGIN_GATHER),
            ("    if (staged_) {\n" + GIVEN_BACK + "    }\n    e.record", "    e.record"))),
    Change("copies run three gathers ahead of two stages", STAGED,
           (("brought_ < taken_ + 2", "brought_ < taken_ + 3"),)),
    Change("a pass's inputs are freed behind its work", LOOP,
           ((DONE, DONE + '    f.upload = PackBuffers(device, 64, 64);\n'),)),
    Change("a pass's results are freed behind its work", LOOP,
           ((DONE, DONE + "    f.results = RowsOnHost();\n"),)),
    Change("inputs are copied from memory that is not page-locked", PACK_BUFFERS,
           (("base::View<const std::int32_t>(to.host.first(n))",
             "base::View<const std::int32_t>(from)"),)),
    Change("kernels run on another stream than their inputs' copies", LOOP,
           (("p_.backend.kernels(), compute);", "p_.backend.kernels(), *other);"),
            ("    results_.point(", OTHER_STREAM + "    results_.point("))),
    Change("results are copied on another stream", LOOP,
           (("copy_out(f.results, s, device, compute)", "copy_out(f.results, s, device, *other)"),
            ("    results_.point(", OTHER_STREAM + "    results_.point("))),
    Change("results are done before they are copied", LOOP,
           (("    results_.copy_out(", DONE + "    results_.copy_out("), (DONE + "}", "}"))),
    Change("inputs are filled before the pass that used them is fetched", LOOP,
           (("        if (pass >= 2) {\n            fetch(pass - 2, figures);\n        }\n", ""),
            ("            ++passes_begun_;\n        }\n",
             "            ++passes_begun_;\n        }\n        fetch(pass - 2, figures);\n"))),
]  # fmt: skip


@pytest.fixture(scope="session")
def trial(tmp_path_factory, golden) -> Trial:
    """Changes in runs of a small model in several passes, and in training that goes on from a
    checkpoint, with two steps before an evaluation and one behind it."""
    folder = tmp_path_factory.mktemp("trial")
    score = golden("llama") | {"batch.tokens": 64}
    train = score | {
        "job.name": "train",
        "batch.tokens": 32,
        "data.window": 32,
        "train.learning_rate": 0.003,
        "train.schedule": "constant",
        "train.batch_documents": 9,
    }
    first = {"train.steps": 1, "checkpoint.directory": folder / "first"}
    OnGpus(Foregather(folder))(train | first)
    more = {
        "train.steps": 4,
        "train.evaluate": score["data.tokens"],
        "train.evaluate_every": 3,
        "checkpoint.every": 2,
        "checkpoint.resume": folder / "first" / "step-00000001.h5",
    }
    return Trial(folder, score, train | more, Builder())


@pytest.fixture
def table(record_property, request):
    """table(what): a line of the table of what was noticed, which is printed at the end."""
    return lambda what: record_property("noticed", f"{request.node.callspec.id}: {what}")


@pytest.mark.parametrize("site", sites(), ids=lambda site: site.name)
def test_what_orders_memory_or_time_is_missed(site, trial, tmp_path, table):
    # A stream that does not wait is found by the order that is enqueued, whatever the clock. What
    # the host waits for, or is let go by, is a matter of time: then delays may have to show it.
    told = trial(site, tmp_path, always=site.verb == "wait")
    table(told)
    assert told, f"{site.file}:{site.line} can go, and nobody notices"
    if site.verb == "wait":
        assert "RACE" in told


@pytest.mark.parametrize("change", OTHERWISE, ids=lambda change: change.name)
def test_memory_used_otherwise_is_noticed(change, trial, tmp_path, table):
    told = trial(change, tmp_path, always=change.file not in HOST_SIDE)
    table(told)
    assert told
    if change.file not in HOST_SIDE:
        assert "RACE" in told


def test_a_change_of_nothing_is_noticed_nowhere(trial, tmp_path):
    begin = "namespace foregather::schedule {\n"
    assert trial(Change("", PREFETCHER, ((begin, begin + "\n"),)), tmp_path) == ""


def test_a_gather_behind_its_compute_is_told_and_changes_no_score(trial, tmp_path):
    late = Change(
        "each gather is enqueued behind the compute that was to hide it", SCHEDULE,
        (("last = own_reach(use_);", "last = use_;"),),
    )  # fmt: skip
    situation = Situation("2 ranks")
    expected = trial.unchanged(situation)
    found = trial.run(situation, tmp_path, trial.build(late, tmp_path), 0)
    assert found.result.code == 3, found.result.stderr
    assert noticed(found, expected) == [f"status 3: {said(found)}"]
    assert "fsdp.forward_prefetch = 1 was not honoured" in found.result.stderr
    assert found.result.score_bytes() == expected.result.score_bytes()
    table = found.result.table("/timing/prefetch")
    prefetch = {name: list(column) for name, column in table.items()}
    assert prefetch["verdict"] == ["not observed"]
    assert (prefetch["requested"], prefetch["issued_ahead"]) == ([1], [0])
    assert prefetch["reason"] == ["at use 0 0 later uses were issued, not 1"]
    # What is gathered later may find more that is there already.
    gathers = list(expected.result.table("/timing/prefetch")["gathers"])
    assert 0 < prefetch["gathers"][0] <= gathers[0]
