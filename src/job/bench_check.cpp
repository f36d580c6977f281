// SPDX-License-Identifier: Apache-2.0
// --check of a bench: what would be measured, in numbers, for any number of ranks.
#include <algorithm>

#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>

#include "check_parts.hpp"
#include "paths.hpp"
#include "report_parts.hpp"
#include "settle_bench.hpp"

namespace foregather::job {
namespace {

std::string work_text(const BenchPlan& plan) {
    const deck::BenchSection& bench = plan.sections.bench;
    std::string text = "work: ";
    for (const Transport& transport : plan.transports) {
        for (const std::int64_t tokens : plan.tokens) {
            text += transport.name + " with " + counted(tokens, "token", "tokens") + ", ";
        }
    }
    return text + counted(bench.pairs, "round", "rounds") + "; " +
           counted(plan.turns(), "turn", "turns") + " of " + std::to_string(bench.warmup) + " + " +
           counted(bench.steps, "step", "steps") + ", " + counted(plan.passes(), "pass", "passes") +
           " in all, and those alone\n";
}

} // namespace

std::string check_bench(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node) {
    const deck::Sections& s = deck.sections();
    refuse_overlaps(deck, deck_path);
    refuse_bench_output(deck);
    const CheckLayout layout = lay_out(deck, ranks, ranks_per_node);
    const BenchInputs inputs = open_bench_inputs(deck, true);
    io::refuse_unusable({s.output.file, s.output.existing == "replace", s.job.title, false});
    const backend::Choice device = backend::choose(s.device.kind, deck.where("device.kind"));
    const int threads = backend::compute_threads(s.device.threads, own_cores(), layout.per_node);
    const backend::Needs needs = backend::needs_of(device.kind, threads);
    const bool host = device.kind == "host";
    const BenchGround ground{
        deck,
        inputs,
        layout.group,
        layout.ranks / layout.group,
        threads,
        needs,
        choose_param_type(s.fsdp.param_dtype, device.kind, inputs.weights->tensors()),
        host ? "mpi" : "nccl",
        host,
        group_facts(layout),
        std::max(layout.per_node / layout.group, 1)};
    const BenchPlan plan = plan_bench(ground);
    deck::Ledger ledger(deck);
    settle_bench_before(ledger, ground, plan, device.kind);
    ledger.refuse_if_strict();
    std::string text = head_text(deck, layout, device, threads);
    for (const Transport& transport : plan.transports) {
        text += "transport: " + transport.name + " (" + transport.why + ")\n";
    }
    text += checksums_text(inputs.weights.get(), {inputs.tokens.get()});
    text += work_text(plan) + limit_text(deck) + memory_text(plan.memory, layout, needs);
    for (const int depth : plan.depths) {
        schedule::Plan pass = bench_pass(plan, inputs.chain, depth);
        pass.passes = 1;
        if (plan.trains) {
            pass.step_ends = {1};
        }
        if (plan.memory.slots > 0) {
            text += schedule_text(schedule::Schedule(pass), inputs.chain);
        }
    }
    for (const auto& notes :
         {inputs.notes, bench_notes(deck, plan), ledger.inert_notes(), ledger.clamp_notes()}) {
        for (const std::string& note : notes) {
            text += "note: " + note + "\n";
        }
    }
    return text;
}

} // namespace foregather::job
