// SPDX-License-Identifier: Apache-2.0
// What --check says of any job.
#include "check_parts.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include <foregather/base/error.hpp>

#include "early_stop.hpp"
#include "report_parts.hpp"
#include "settle_common.hpp"
#include "version.hpp"

namespace foregather::job {
namespace {

constexpr std::size_t printable_uses = 60; // a longer schedule is not printed whole
constexpr int printed_steps = 90;

} // namespace

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

CheckLayout lay_out(const deck::Deck& deck, int ranks, int ranks_per_node) {
    CheckLayout layout{std::max(ranks, 1), 0, deck.sections().mesh.shard};
    layout.per_node = ranks_per_node > 0 ? std::min(ranks_per_node, layout.ranks) : layout.ranks;
    layout.group = layout.group == 0 ? layout.ranks : layout.group;
    if (layout.group > layout.ranks || layout.ranks % layout.group != 0) {
        base::refuse(deck.where("mesh.shard") + " = " + std::to_string(layout.group) +
                     " does not divide the " + std::to_string(layout.ranks) + " ranks of --ranks");
    }
    return layout;
}

std::string limit_text(const deck::Deck& deck) {
    const auto limit = EarlyStop::limit_of(deck, std::time(nullptr));
    const std::string note = limit.note.empty() ? "" : "note: " + limit.note + "\n";
    if (limit.s == 0) {
        return note;
    }
    const double kept = EarlyStop::kept_s(limit.s, {});
    return note + "time: begun now, the run ends at most " + in_format(limit.s, "%.5g") +
           " s after its start (" + limit.by + "); " + in_format(kept, "%.3g") +
           " s or more of these are kept for saving, so the last step ends within " +
           in_format(limit.s - kept, "%.5g") + " s\n";
}

std::string memory_text(const MemoryPlan& plan, const CheckLayout& layout,
                        const backend::Needs& needs) {
    std::string text = "memory plan of a rank\n";
    for (const MemoryPlan::Row& r : plan.rows) {
        text += row(r.name, in_words(r.bytes), r.detail);
    }
    const NodeMemory node = memory_in_node(plan, layout.per_node, needs, node_memory());
    if (!needs.host_memory) {
        text += row("on its device", in_words(plan.on_device()),
                    needs.memory.count > 0 ? "which has " + in_words(needs.memory) : "");
    }
    text += row(needs.host_memory ? "total" : "in host memory", in_words(node.of_rank), node.text);
    return node.fits ? text : text + "  note: " + node.note() + "\n";
}

std::string checksums_text(const io::WeightsFile* weights,
                           const std::vector<const io::TokenFile*>& tokens) {
    const auto line = [](const std::string& path, const std::string& sealed) {
        return "checksums: " + path + ": " +
               (sealed.empty() ? "none, damage to its data is not noticed" : sealed + " verified") +
               "\n";
    };
    std::string text =
        weights == nullptr ? "" : line(weights->path(), weights->config_sealed() ? "/config" : "");
    for (const io::TokenFile* file : tokens) {
        text += file == nullptr ? "" : line(file->path(), file->sealed());
    }
    return text;
}

std::string head_text(const deck::Deck& deck, const CheckLayout& layout,
                      const backend::Choice& device, int threads) {
    return deck.effective_text() + "\nranks: " + std::to_string(layout.ranks) + ", " +
           std::to_string(layout.per_node) + " on a node, shard groups of " +
           std::to_string(layout.group) + "; " + device.kind + " (" + device.why + ")" +
           (device.kind == "host" ? ", " + std::to_string(threads) + " threads a rank" : "") + "\n";
}

GroupFacts group_facts(const CheckLayout& layout) {
    const mesh::WindowSpace space = mesh::window_space();
    return {layout.group, layout.per_node % layout.group == 0, layout.per_node, space.free,
            space.directory};
}

std::string schedule_text(const schedule::Schedule& schedule, const model::Chain& chain) {
    using schedule::Direction;
    std::vector<std::string> names;
    for (const shard::UnitSpec& unit : chain.units) {
        names.push_back(unit.name);
    }
    const auto uses = static_cast<std::size_t>(schedule.uses_per_pass());
    const int back = schedule.depth(Direction::backward);
    std::string text =
        "schedule: " + counted(static_cast<std::int64_t>(uses), "use", "uses") + " of " +
        counted(std::ssize(names), "unit", "units") + " a pass, depth " +
        std::to_string(schedule.depth()) +
        (uses > chain.uses.size() ? " forward and " + std::to_string(back) + " backward" : "") +
        ", " + counted(schedule.slots(), "slot", "slots") + "\n";
    return uses > printable_uses ? text : text + describe(schedule, names, printed_steps);
}

std::string version_text() {
    std::string text;
    for (const Version& v : versions()) {
        text +=
            v.name + std::string(v.name.size() < 12 ? 12 - v.name.size() : 1, ' ') + v.value + "\n";
    }
    return text;
}

} // namespace foregather::job
