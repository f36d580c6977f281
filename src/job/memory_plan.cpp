// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes, from shapes alone.
#include "memory_plan.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <foregather/base/error.hpp>
#include <foregather/model/transformer.hpp>
#include <foregather/schedule/depth_choice.hpp>
#include <foregather/schedule/schedule.hpp>

#include "limits.hpp"
#include "row_results.hpp"

namespace foregather::job {
namespace {

[[noreturn]] void refuse_gather_memory(const deck::Deck& deck, const model::Chain& chain,
                                       const shard::ArenaPlan& arena, base::DType weights,
                                       const Transport& transport) {
    const auto padded = [&](std::size_t unit) { return arena.units[unit].layout.padded(); };
    std::size_t largest = 0;
    base::Elements largest_layer = 0;
    for (std::size_t u = 0; u < chain.units.size(); ++u) {
        largest = padded(u) > padded(largest) ? u : largest;
        if (chain.units[u].name.starts_with("layer.")) {
            largest_layer = std::max(largest_layer, padded(u));
        }
    }
    const std::int64_t layer = base::bytes_of(largest_layer, weights).count;
    const std::int64_t all = base::bytes_of(padded(largest), weights).count;
    std::string text = deck.where("fsdp.gather_memory") + " = " +
                       std::to_string(deck.sections().fsdp.gather_memory.count) +
                       " bytes does not hold the largest unit, " + chain.units[largest].name +
                       ", of " + std::to_string(all) + " bytes; allow that many";
    if (padded(largest) > largest_layer) {
        text += ", or set fsdp.piece_bytes to that of a layer (" + std::to_string(layer) +
                " bytes) or less, which cuts embedding and head smaller";
    }
    base::refuse(transport.name == "mpi"
                     ? text + ", or comm.transport = shared on one node, which gathers nothing"
                     : text);
}

} // namespace

std::string in_words(base::Bytes bytes) {
    const auto n = static_cast<double>(bytes.count);
    char text[32];
    if (bytes.count < 10 << 10) {
        std::snprintf(text, sizeof(text), "%lld B", static_cast<long long>(bytes.count));
    } else if (n < 1024.0 * 1024.0) {
        std::snprintf(text, sizeof(text), "%.1f KiB", n / 1024.0);
    } else if (n < 10.0 * 1024 * 1024 * 1024) {
        std::snprintf(text, sizeof(text), "%.1f MiB", n / (1024.0 * 1024.0));
    } else {
        std::snprintf(text, sizeof(text), "%.1f GiB", n / (1024.0 * 1024.0 * 1024.0));
    }
    return text;
}

Transport choose_transport(const deck::Deck& deck, const std::string& copying_transport,
                           bool can_share, const GroupFacts& group, base::Bytes whole_weights,
                           bool offload) {
    return choose_transport(deck, "comm.transport", deck.sections().comm.transport,
                            copying_transport, can_share, group, whole_weights, offload);
}

Transport choose_transport(const deck::Deck& deck, const char* key, const std::string& asked,
                           const std::string& copying_transport, bool can_share,
                           const GroupFacts& group, base::Bytes whole_weights, bool offload) {
    const std::string place = deck.where(key) + " = " + asked + ": ";
    if (asked != "auto" && asked != copying_transport && !(asked == "shared" && can_share)) {
        base::refuse(place + "this backend gathers by " + copying_transport +
                     (can_share ? " or shared" : "") + "; use one of these, or auto");
    }
    std::string against; // why not shared
    if (!can_share) {
        against = "this backend cannot read shards in place";
    } else if (!group.on_one_node) {
        against = "a shard group spans nodes";
    } else if (deck.sections().comm.link_rate_bytes_per_s > 0) {
        against = "comm.link_rate slows gathers, and shared has none";
    } else if (whole_weights.count + window_spare_bytes > group.window_free.count) {
        against = "the weights need " + in_words(whole_weights) + " of " + group.window_directory +
                  ", which has " + in_words(group.window_free) + " free";
    }
    if (asked == "shared" && !against.empty()) {
        base::refuse(place + against + "; use " + key + " = " + copying_transport +
                     (std::string(key) == "comm.transport" ? " or auto" : ""));
    }
    if (group.ranks == 1) {
        return offload
                   ? Transport{host_memory_transport, "one rank holds all weights, in host memory"}
                   : Transport{"none", "one rank holds all weights: nothing is gathered"};
    }
    if (asked == "auto" && against.empty()) {
        return {"shared", "all ranks of a shard group are on one node"};
    }
    return {asked == "auto" ? copying_transport : asked, asked == "auto" ? against : "asked for"};
}

bool moves(const Transport& transport) {
    return transport.name != "none" && transport.name != "shared";
}

std::string why_nothing_moves(const Transport& transport) {
    return transport.name == "none" ? "one rank holds all weights: nothing is gathered"
                                    : "shared weights are read where they lie: nothing is gathered";
}

shard::ArenaPlan arena_plan(const model::Chain& chain, int ranks, const backend::Needs& needs,
                            base::DType weights) {
    return {chain.units, ranks,
            std::max(shard::alignment, needs.arena_alignment.count / base::size_of(weights))};
}

bool choose_offload(const deck::Deck& deck, const backend::Needs& needs) {
    const std::string& asked = deck.sections().fsdp.offload;
    if (asked != "none" && needs.host_memory) {
        base::refuse(deck.where("fsdp.offload") + " = " + asked +
                     ": they are there already, since the host computes; use fsdp.offload = none, "
                     "or device.kind = cuda");
    }
    return asked != "none";
}

base::Bytes MemoryPlan::on_device() const {
    base::Bytes sum;
    for (const Row& row : rows) {
        sum += row.bytes - row.on_host;
    }
    return sum;
}

NodeMemory memory_in_node(const MemoryPlan& plan, int ranks_on_node, const backend::Needs& needs,
                          base::Bytes node) {
    NodeMemory m;
    m.of_rank = needs.host_memory ? plan.total() : plan.total() - plan.on_device();
    m.of_node = ranks_on_node * m.of_rank;
    m.text = std::to_string(ranks_on_node) + (ranks_on_node == 1 ? " rank" : " ranks") +
             " on a node: " + in_words(m.of_node) + "; this node has " + in_words(node);
    m.fits = m.of_node <= node;
    return m;
}

std::string NodeMemory::note() const {
    return fits ? "" : "memory plan: " + text + ": that does not fit a node like this one";
}

void refuse_beyond_device(const MemoryPlan& plan, const device::Facts& facts) {
    if (facts.memory.count == 0 || plan.on_device() <= facts.memory) {
        return;
    }
    std::string text = "a rank needs " + in_words(plan.on_device()) + " of its device's memory, " +
                       facts.name + " has " + in_words(facts.memory) + ":";
    for (const MemoryPlan::Row& row : plan.rows) {
        if (row.bytes > row.on_host) {
            text +=
                "\n  " + row.name + ": " + in_words(row.bytes - row.on_host) + ", " + row.detail;
        }
    }
    base::refuse(text + "\n  use more ranks, a larger mesh.shard, fsdp.offload = params, smaller "
                        "batch.tokens or a smaller fsdp.forward_prefetch");
}

base::Bytes MemoryPlan::total() const {
    base::Bytes sum;
    for (const Row& row : rows) {
        sum += row.bytes;
    }
    return sum;
}

ParamType choose_param_type(const std::string& asked, const std::string& device_kind,
                            const std::vector<io::StoredTensor>& stored) {
    if (asked != "auto") {
        return {asked == "bf16" ? base::DType::bf16 : base::DType::f32, "asked for"};
    }
    if (device_kind == "host") {
        return {base::DType::f32, "auto is fp32 on the host"};
    }
    for (const io::StoredTensor& tensor : stored) {
        if (tensor.shape.size() >= 2 && tensor.type != base::DType::bf16) {
            return {base::DType::f32,
                    "the file's " + tensor.name + " is " + base::name_of(tensor.type)};
        }
    }
    return {base::DType::bf16, "the file's matrices are bf16"};
}

MemoryPlan plan_memory(const model::ModelConfig& config, const model::Chain& chain, int ranks,
                       const Transport& transport, int depth, const Work& work) {
    const PackPlan& packs = work.packs;
    const model::HeadWants wants = head_wants(work.asked);
    const base::DType weights = work.weights;
    const shard::ArenaPlan arena = arena_plan(chain, ranks, work.needs, weights);
    MemoryPlan plan;
    const auto held = [&](base::Elements n) { return base::bytes_of(n, weights); };
    const std::string parts = std::string(base::name_of(weights)) + ", " +
                              std::to_string(chain.units.size()) + " units over " +
                              std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
    const base::Bytes shard = held(arena.shard_elements);
    plan.rows.push_back({"weights", shard,
                         parts + (transport.name == "shared" ? ", this rank's part of one window"
                                  : work.offload             ? ", in host memory"
                                                             : ""),
                         work.offload ? shard : base::Bytes{}});
    if (moves(transport)) {
        plan.slots = schedule::Schedule(chain.unit_order(), 1, depth).slots();
        plan.slot_bytes = held(arena.largest_unit);
        plan.rows.push_back({"slots", plan.slots * plan.slot_bytes,
                             std::to_string(plan.slots) + " x " + in_words(plan.slot_bytes)});
    }
    if (work.offload && ranks > 1) {
        const base::Bytes stage = held(arena.largest_part);
        plan.rows.push_back(
            {"stages", 2 * stage, "2 x " + in_words(stage) + ", from host memory to a gather"});
    }
    plan.rows.push_back({"activations",
                         model::Transformer::activation_bytes(
                             config, {packs.most_tokens, packs.longest, work.weights, wants,
                                      work.needs.row_multiple}),
                         "packs of up to " + std::to_string(packs.most_tokens) + " tokens"});
    plan.rows.push_back({"kernel scratch", work.needs.scratch,
                         work.needs.host_memory ? std::to_string(work.threads) +
                                                      (work.threads == 1 ? " thread" : " threads")
                                                : "products and what kernels need beside them"});
    const std::int64_t tokens = 2 * packs.most_tokens;
    plan.rows.push_back({"inputs and results",
                         {tokens * (bytes_per_pack_token + host_bytes_per_pack_token)},
                         "two passes",
                         {tokens * host_bytes_per_pack_token}});
    if (work.asked.more()) {
        // On the device once, on the host for each of two passes.
        const base::Bytes once =
            packs.most_rows * bytes_of_row(wants, config.vocabulary, config.width);
        plan.rows.push_back({"what is asked for", 3 * once,
                             "entropy, top tokens, hidden states, logits of up to " +
                                 std::to_string(packs.most_rows) + " tokens, three times",
                             2 * once});
    }
    // What is read and, on its way to another memory, two buffers that alternate.
    const base::Bytes staging{(work.needs.host_memory || work.offload ? 1 : 3) * staging_bytes};
    plan.rows.push_back({"load staging", staging, "while loading", staging});
    return plan;
}

Depth choose_depth(const deck::Deck& deck, const model::Chain& chain, const shard::ArenaPlan& arena,
                   const Transport& transport, base::DType weights) {
    const deck::FsdpSection& fsdp = deck.sections().fsdp;
    const auto in_chain = [&](int depth) {
        return schedule::Schedule(chain.unit_order(), 1, depth).depth();
    };
    const int asked = most_asked(fsdp.forward_prefetch);
    Depth depth{in_chain(asked), "", fsdp.forward_prefetch == deck::automatic};
    if (depth.units < asked) {
        depth.why = "the model has " + std::to_string(chain.units.size()) +
                    " units: no more than " + std::to_string(depth.units) +
                    " can be ahead of the one in use";
    }
    if (depth.automatic && !moves(transport)) {
        return {0, why_nothing_moves(transport), true};
    }
    if (!moves(transport) || fsdp.gather_memory.count == 0) {
        return depth;
    }
    const base::Bytes slot = base::bytes_of(arena.largest_unit, weights);
    const std::int64_t slots = fsdp.gather_memory.count / slot.count;
    if (slots == 0) {
        refuse_gather_memory(deck, chain, arena, weights, transport);
    }
    if (slots - 1 < depth.units) {
        depth = {static_cast<int>(slots - 1),
                 "fsdp.gather_memory = " + std::to_string(fsdp.gather_memory.count) +
                     " bytes holds " + std::to_string(slots) +
                     (slots == 1 ? " slot of " : " slots of ") + std::to_string(slot.count) +
                     " bytes, one of them for the unit in use",
                 depth.automatic};
    }
    return depth;
}

int most_asked(int depth) { return depth == deck::automatic ? schedule::most_chosen_depth : depth; }

std::string depth_note(const Depth& depth, const deck::Deck& deck, const char* key) {
    const std::string place = deck.where(key);
    if (depth.automatic) {
        return place + " = auto: a depth of 0 to " + std::to_string(depth.units) +
               " will be chosen by measuring a few passes" +
               (depth.why.empty() ? "" : "; no more, since " + depth.why) +
               "; memory is planned for the largest";
    }
    if (depth.why.empty() || !place.starts_with("default:")) {
        return "";
    }
    return place + " = " + deck.plain(key) + " is clamped to " + std::to_string(depth.units) +
           ": " + depth.why;
}

std::string chosen_line(const Depth& depth) {
    return "depth " + std::to_string(depth.units) +
           " chosen (auto): " + (depth.told.empty() ? depth.why : depth.told);
}

int smallest_group_that_fits(const model::ModelConfig& config, const model::Chain& chain, int ranks,
                             int group, int depth, const Work& work, int ranks_on_node,
                             base::Bytes memory) {
    for (int size = 1; size < group; ++size) {
        if (ranks % size != 0) {
            continue;
        }
        const Transport transport{size == 1 ? "none" : "mpi", ""};
        const MemoryPlan plan = plan_memory(config, chain, size, transport, depth, work);
        const bool fits = work.needs.host_memory
                              ? ranks_on_node * plan.total().count <= memory.count / 5 * 4
                              : plan.on_device().count <= work.needs.memory.count / 5 * 4;
        if (fits) {
            return size;
        }
    }
    return 0;
}

base::Bytes node_memory() {
    return {static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)};
}

} // namespace foregather::job
