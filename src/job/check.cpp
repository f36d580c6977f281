// SPDX-License-Identifier: Apache-2.0
// --check: the run in numbers, for any number of ranks, without starting them.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <foregather/backend/backend.hpp>
#include <foregather/base/error.hpp>
#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/window.hpp>
#include <foregather/schedule/schedule.hpp>

#include "pass_loop.hpp"
#include "paths.hpp"
#include "resume.hpp"
#include "row_results.hpp"
#include "settle.hpp"
#include "version.hpp"

namespace foregather::job {
namespace {

constexpr std::size_t printable_uses = 40; // a longer schedule is not printed whole
constexpr int printed_steps = 60;

std::string row(const std::string& name, const std::string& value, const std::string& detail) {
    char text[400];
    std::snprintf(text, sizeof(text), "  %-20s%12s  %s\n", name.c_str(), value.c_str(),
                  detail.c_str());
    return text;
}

int own_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// What --check takes for the topology: ranks fill nodes one after another.
struct Layout {
    int ranks, per_node, group;
};

Layout lay_out(const deck::Deck& deck, int ranks, int ranks_per_node) {
    Layout layout{std::max(ranks, 1), 0, deck.sections().mesh.shard};
    layout.per_node = ranks_per_node > 0 ? std::min(ranks_per_node, layout.ranks) : layout.ranks;
    layout.group = layout.group == 0 ? layout.ranks : layout.group;
    if (layout.group > layout.ranks || layout.ranks % layout.group != 0) {
        base::refuse(deck.where("mesh.shard") + " = " + std::to_string(layout.group) +
                     " does not divide the " + std::to_string(layout.ranks) + " ranks of --ranks");
    }
    return layout;
}

std::string memory_text(const MemoryPlan& plan, const Layout& layout, const backend::Needs& needs) {
    std::string text = "memory plan of a rank\n";
    for (const MemoryPlan::Row& r : plan.rows) {
        text += row(r.name, in_words(r.bytes), r.detail);
    }
    const base::Bytes in_node = needs.host_memory ? plan.total() : plan.total() - plan.on_device();
    if (!needs.host_memory) {
        text += row("on its device", in_words(plan.on_device()),
                    needs.memory.count > 0 ? "which has " + in_words(needs.memory) : "");
    }
    const base::Bytes node = layout.per_node * in_node;
    text += row(needs.host_memory ? "total" : "in host memory", in_words(in_node),
                std::to_string(layout.per_node) + " ranks on a node: " + in_words(node) +
                    "; this node has " + in_words(node_memory()));
    if (node > node_memory()) {
        text += "  note: that does not fit a node like this one\n";
    }
    return text;
}

std::string smaller_group_text(const Inputs& inputs, const Layout& layout, int depth,
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

std::string schedule_text(const Inputs& inputs, std::int64_t passes, int depth) {
    const std::vector<base::UnitId> uses = inputs.chain.unit_order();
    std::vector<std::string> names;
    for (const shard::UnitSpec& unit : inputs.chain.units) {
        names.push_back(unit.name);
    }
    const schedule::Schedule schedule(uses, passes, depth);
    std::string text = "schedule: " + std::to_string(uses.size()) + " uses of " +
                       std::to_string(names.size()) + " units a pass, depth " +
                       std::to_string(schedule.depth()) + ", " + std::to_string(schedule.slots()) +
                       " slots\n";
    return uses.size() > printable_uses ? text : text + describe(schedule, names, printed_steps);
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

std::string version_text() {
    std::string text;
    for (const Version& v : versions()) {
        text +=
            v.name + std::string(v.name.size() < 12 ? 12 - v.name.size() : 1, ' ') + v.value + "\n";
    }
    return text;
}

std::string check(const deck::Deck& deck, const std::string& deck_path, int ranks,
                  int ranks_per_node) {
    const deck::Sections& s = deck.sections();
    refuse_overlaps(deck, deck_path);
    const Layout layout = lay_out(deck, ranks, ranks_per_node);
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
    const mesh::WindowSpace space = mesh::window_space();
    const bool host = device.kind == "host";
    const GroupFacts group{layout.group, layout.per_node % layout.group == 0, layout.per_node,
                           space.free, space.directory};
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
    std::string text = deck.effective_text() + "\n";
    text += "ranks: " + std::to_string(layout.ranks) + ", " + std::to_string(layout.per_node) +
            " on a node, shard groups of " + std::to_string(layout.group) + "; " + device.kind +
            " (" + device.why + ")" +
            (host ? ", " + std::to_string(threads) + " threads a rank" : "") + "\n";
    text += "transport: " + transport.name + " (" + transport.why + ")\n";
    text += work_text(inputs.packs, to_do, passes);
    text += memory_text(plan, layout, needs);
    text += row("results on disk", in_words(io::bytes_of(results)), "and the timeline");
    text += smaller_group_text(inputs, layout, depth.units, work);
    std::vector<std::string> depth_notes;
    if (moves(transport)) {
        text += schedule_text(inputs, passes, depth.units);
        depth_notes = note_of(depth, deck);
    }
    for (const auto& notes :
         {resume.notes, inputs.notes, depth_notes, ledger.inert_notes(), ledger.clamp_notes()}) {
        for (const std::string& note : notes) {
            text += "note: " + note + "\n";
        }
    }
    return text;
}

} // namespace foregather::job
