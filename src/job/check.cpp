// SPDX-License-Identifier: Apache-2.0
// --check of a score: the run in numbers, for any number of ranks, without starting them.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <foregather/base/error.hpp>
#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/job/job.hpp>

#include "check_parts.hpp"
#include "pass_loop.hpp"
#include "paths.hpp"
#include "resume.hpp"
#include "row_results.hpp"
#include "settle.hpp"

namespace foregather::job {
namespace {

std::string smaller_group_text(const Inputs& inputs, const CheckLayout& layout, int depth,
                               const Work& work) {
    const int smaller =
        smallest_group_that_fits(inputs.config, inputs.chain, layout.ranks, layout.group, depth,
                                 work, layout.per_node, node_memory());
    if (smaller == 0) {
        return "";
    }
    return "  note: mesh.shard = " + std::to_string(smaller) + " would fit as well: " +
           (smaller == 1 ? "no gathers are needed then\n"
                         : "gathers then stay among fewer ranks\n");
}

std::string work_text(const PackPlan& packs, std::int64_t to_do, std::int64_t passes) {
    return "work: " + std::to_string(packs.documents) + " documents, " +
           (packs.cut.window > 0 ? std::to_string(packs.windows) + " windows, " : "") +
           std::to_string(packs.tokens) + " tokens, " + std::to_string(to_do) + " packs, " +
           std::to_string(passes) + " passes\n";
}

// Where results would go: what is there, and whether there is room for what is not.
Resume check_output(const deck::Deck& deck, Inputs& inputs, const io::ScoreLayout& results) {
    const deck::Sections& s = deck.sections();
    const io::Output output{s.output.file, s.output.existing == "replace", s.job.title,
                            s.output.existing == "resume"};
    refuse_unusable(output);
    Resume resume;
    if (output.resume) {
        inputs.tokens_sha256 = io::sha256_of_file(inputs.tokens->path());
        resume =
            look_for_earlier(deck, output, identity_of(deck, inputs, {}), results.packs, false);
    }
    if (!output.resume && std::filesystem::exists(io::part_path(output.path))) {
        resume.notes.push_back(io::part_path(output.path) +
                               " is there: this run would replace it; output.existing = resume "
                               "would go on with it");
    }
    if (resume.state == Resume::State::anew) {
        refuse_without_room(output, io::bytes_of(results));
    }
    return resume;
}

} // namespace

std::string check_score(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node) {
    const deck::Sections& s = deck.sections();
    refuse_overlaps(deck, deck_path);
    const CheckLayout layout = lay_out(deck, ranks, ranks_per_node);
    Inputs inputs = open_inputs(deck, true);
    const io::ScoreLayout results = score_layout(inputs, s.score);
    const Resume resume = check_output(deck, inputs, results);

    const backend::Choice device = backend::choose(s.device.kind, deck.where("device.kind"));
    const ParamType param =
        choose_param_type(s.fsdp.param_dtype, device.kind, inputs.weights->tensors());
    const int threads = backend::compute_threads(s.device.threads, own_cores(), layout.per_node);
    const backend::Needs needs = backend::needs_of(device.kind, threads);
    const bool offload = choose_offload(deck, needs);
    const shard::ArenaPlan arena = arena_plan(inputs.chain, layout.group, needs, param.type);
    const bool host = device.kind == "host";
    const GroupFacts group = group_facts(layout);
    const int groups = std::max(layout.per_node / layout.group, 1);
    const Transport transport =
        choose_transport(deck, host ? "mpi" : "nccl", host, group,
                         groups * base::bytes_of(arena.whole_elements, param.type), offload);
    const Depth depth = choose_depth(deck, inputs.chain, arena, transport, param.type);
    const Work work{inputs.packs, s.score, threads, param.type, needs, offload};
    const MemoryPlan plan =
        plan_memory(inputs.config, inputs.chain, layout.group, transport, depth.units, work);
    deck::Ledger ledger(deck);
    settle_before(ledger, deck, transport, inputs, depth, device.kind);
    ledger.refuse_if_strict();

    const std::int64_t to_do = std::ssize(packs_to_do(resume, results.packs));
    const std::int64_t passes = PassLoop::passes(to_do, layout.ranks);
    std::string text = head_text(deck, layout, device, threads);
    text += "transport: " + transport.name + " (" + transport.why + ")\n";
    text += checksums_text(inputs.weights.get(), {inputs.tokens.get()});
    text += work_text(inputs.packs, to_do, passes) + limit_text(deck);
    text += memory_text(plan, layout, needs);
    text += row("results on disk", in_words(io::bytes_of(results)), "and the timeline");
    text += smaller_group_text(inputs, layout, depth.units, work);
    std::vector<std::string> depth_notes;
    if (moves(transport)) {
        text += schedule_text(schedule::Schedule(inputs.chain.unit_order(), passes, depth.units),
                              inputs.chain);
        depth_notes = {depth_note(depth, deck, "fsdp.forward_prefetch")};
    }
    for (const auto& notes :
         {resume.notes, inputs.notes, depth_notes, ledger.inert_notes(), ledger.clamp_notes()}) {
        for (const std::string& note : notes) {
            text += note.empty() ? "" : "note: " + note + "\n";
        }
    }
    return text;
}

std::string check(const deck::Deck& deck, const std::string& deck_path, int ranks,
                  int ranks_per_node) {
    const std::string& job = deck.sections().job.name;
    const auto of_job = job == "train"   ? check_train
                        : job == "bench" ? check_bench
                        : job == "plan"  ? check_plan
                                         : check_score;
    return of_job(deck, deck_path, ranks, ranks_per_node);
}

} // namespace foregather::job
