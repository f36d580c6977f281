// SPDX-License-Identifier: Apache-2.0
// --check of a training run: the run in numbers, for any number of ranks, without starting them.
#include <algorithm>

#include <foregather/base/error.hpp>
#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>

#include "check_parts.hpp"
#include "checkpoints.hpp"
#include "paths.hpp"
#include "settle_train.hpp"
#include "train_plan.hpp"
#include "train_settings.hpp"

namespace foregather::job {
namespace {

// Where the run would begin, and whether what it writes fits.
struct Beginning {
    std::int64_t step = 0;
    std::vector<std::string> notes;
    std::vector<std::string> disk;
};

Beginning look_ahead(const deck::Deck& deck, const TrainInputs& inputs) {
    const deck::Sections& s = deck.sections();
    const FoundStart found = look_for_start(s.checkpoint, deck.where("checkpoint.resume"));
    Beginning begin;
    begin.notes = found.notes;
    if (!found.path.empty()) {
        const io::Checkpoint checkpoint(found.path);
        begin.step = checkpoint.state().step;
        const auto told = compare_with(checkpoint, inputs.chain, train_settings(deck, inputs, {}));
        begin.notes.insert(begin.notes.end(), told.begin(), told.end());
    }
    if (begin.step < s.train.steps) {
        io::refuse_unusable({s.output.file, s.output.existing == "replace", s.job.title, false});
    }
    const DiskPlan disk = plan_disk(
        s, content_of(inputs),
        io::bytes_of(io::TrainLayout{s.train.steps, evaluations_of(s.train), 0}), begin.step);
    if (const std::string problem = disk.problem(); !problem.empty()) {
        base::refuse(problem);
    }
    begin.disk = disk.lines();
    return begin;
}

std::string work_text(const deck::Sections& s, const TrainInputs& inputs, int ranks,
                      std::int64_t begin) {
    const std::string batch =
        s.train.batch_documents > 0
            ? std::to_string(s.train.batch_documents)
            : "what fills " + std::to_string(ranks * s.train.accumulate) + " packs";
    return "work: " + std::to_string(inputs.items.items.size()) +
           (s.data.window > 0 ? " windows" : " documents") + " of " +
           std::to_string(inputs.items.tokens) + " tokens; " + batch + " a step, " +
           std::to_string(std::max<std::int64_t>(s.train.steps - begin, 0)) +
           " steps to be taken\n";
}

} // namespace

std::string check_train(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node) {
    const deck::Sections& s = deck.sections();
    refuse_overlaps(deck, deck_path);
    const CheckLayout layout = lay_out(deck, ranks, ranks_per_node);
    const TrainInputs inputs = open_train_inputs(deck, true);
    const backend::Choice device = backend::choose(s.device.kind, deck.where("device.kind"));
    const ParamType param = choose_train_param(s.fsdp.param_dtype, device.kind, inputs);
    const int threads = backend::compute_threads(s.device.threads, own_cores(), layout.per_node);
    const backend::Needs needs = backend::needs_of(device.kind, threads);
    const shard::ArenaPlan arena = arena_plan(inputs.chain, layout.group, needs, param.type);
    const bool host = device.kind == "host";
    const auto type_of_reduce =
        s.fsdp.reduce_dtype == "bf16" ? base::DType::bf16 : base::DType::f32;
    const int groups = std::max(layout.per_node / layout.group, 1);
    const Transport transport = choose_transport(
        deck, host ? "mpi" : "nccl", host, group_facts(layout),
        groups * window_bytes(arena, layout.group, param.type, type_of_reduce), false);
    const TrainSchedule schedule =
        plan_training_pass(deck, inputs.chain, arena, transport, param.type);
    const int replicas = layout.ranks / layout.group;
    deck::Ledger ledger(deck);
    settle_train_before(ledger, deck, {transport, replicas, inputs, schedule, device.kind});
    ledger.refuse_if_strict();
    const Beginning begin = look_ahead(deck, inputs);
    const TrainWork work{s,        inputs,     threads,        layout.group,
                         replicas, param.type, type_of_reduce, needs};
    std::string text = head_text(deck, layout, device, threads);
    text += "transport: " + transport.name + " (" + transport.why + ")\n";
    text += checksums_text(inputs.weights.get(), {inputs.tokens.get(), inputs.evaluation.get()});
    text += work_text(s, inputs, layout.ranks, begin.step) + limit_text(deck);
    text += memory_text(plan_training_memory(work, transport, schedule), layout, needs);
    for (const std::string& line : begin.disk) {
        text += "  " + line + "\n";
    }
    std::vector<std::string> depths;
    if (moves(transport)) {
        schedule::Plan plan = schedule.plan;
        plan.passes = 1;
        plan.step_ends = {1};
        text += schedule_text(schedule::Schedule(plan), inputs.chain);
        depths = depth_notes(schedule, deck);
    }
    for (const auto& notes :
         {begin.notes, inputs.notes, depths, ledger.inert_notes(), ledger.clamp_notes()}) {
        for (const std::string& note : notes) {
            text += "note: " + note + "\n";
        }
    }
    return text;
}

} // namespace foregather::job
