// SPDX-License-Identifier: Apache-2.0
// Lists of the deck as far as model, memory and transports let them be.
#include "bench_plan.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

#include "report_parts.hpp"

namespace foregather::job {
namespace {

// Where nothing moves there is one way to do it.
const std::vector<int> no_depths = {0};

std::vector<int> asked_depths(const deck::Sections& s) {
    if (s.bench.depths.empty()) {
        if (s.fsdp.forward_prefetch == deck::automatic) {
            return {0, 1, 2};
        }
        return s.fsdp.forward_prefetch == 0 ? std::vector<int>{0}
                                            : std::vector<int>{0, s.fsdp.forward_prefetch};
    }
    std::vector<int> depths;
    for (const std::int64_t depth : s.bench.depths) {
        depths.push_back(static_cast<int>(depth));
    }
    return depths;
}

int slots_at(const BenchPlan& plan, const model::Chain& chain, int depth) {
    return schedule::Schedule(bench_pass(plan, chain, depth)).slots();
}

// The deepest that fits: by the number of units, and by fsdp.gather_memory.
int deepest(const BenchGround& g, const BenchPlan& plan, const shard::ArenaPlan& arena,
            std::string& why) {
    const model::Chain& chain = g.inputs.chain;
    const std::vector<int> asked = asked_depths(g.deck.sections());
    const int most = *std::max_element(asked.begin(), asked.end());
    int depth = std::min(most, static_cast<int>(std::ssize(chain.units)) - 1);
    if (depth < most) {
        why = "the model has " + counted(std::ssize(chain.units), "unit", "units") +
              ": no more than " + std::to_string(depth) + " can be ahead of the one in use";
    }
    const base::Bytes limit = g.deck.sections().fsdp.gather_memory;
    const base::Bytes slot = base::bytes_of(arena.largest_unit, g.param.type);
    if (limit.count == 0) {
        return depth;
    }
    if (slots_at(plan, chain, 0) * slot > limit) {
        base::refuse(g.deck.where("fsdp.gather_memory") + " = " + std::to_string(limit.count) +
                     " bytes does not hold " + counted(slots_at(plan, chain, 0), "slot", "slots") +
                     " of " + std::to_string(slot.count) +
                     " bytes; allow that much, or cut embedding and head smaller with "
                     "fsdp.piece_bytes");
    }
    while (slots_at(plan, chain, depth) * slot > limit) {
        --depth;
        why = "fsdp.gather_memory = " + std::to_string(limit.count) + " bytes holds " +
              counted(limit.count / slot.count, "slot", "slots") + " of " +
              std::to_string(slot.count) + " bytes, one of them for the unit in use";
    }
    return depth;
}

void choose_depths(const BenchGround& g, const shard::ArenaPlan& arena, BenchPlan& plan) {
    const int most = deepest(g, plan, arena, plan.depths_why);
    for (const int depth : asked_depths(g.deck.sections())) {
        const int in_force = std::min(depth, most);
        if (std::find(plan.depths.begin(), plan.depths.end(), in_force) == plan.depths.end()) {
            plan.depths.push_back(in_force);
        }
    }
    plan.slots =
        slots_at(plan, g.inputs.chain, *std::max_element(plan.depths.begin(), plan.depths.end()));
}

std::vector<Transport> choose_transports(const BenchGround& g, const BenchPlan& plan,
                                         const shard::ArenaPlan& arena) {
    const base::Bytes whole =
        g.groups_on_node * (plan.trains ? window_bytes(arena, g.ranks, g.param.type, plan.reduce)
                                        : base::bytes_of(arena.whole_elements, g.param.type));
    const std::vector<std::string>& asked = g.deck.sections().bench.transports;
    if (asked.empty()) {
        return {choose_transport(g.deck, g.copying_transport, g.can_share, g.group, whole,
                                 plan.offload)};
    }
    std::vector<Transport> transports;
    for (const std::string& name : asked) {
        transports.push_back(choose_transport(g.deck, "bench.transports", name, g.copying_transport,
                                              g.can_share, g.group, whole, plan.offload));
        if (g.ranks == 1) { // nothing between ranks: one is as good as another
            break;
        }
    }
    return transports;
}

PackPlan packs_of(const BenchGround& g, const BenchPlan& plan) {
    PackPlan packs;
    packs.most_tokens = packs.most_rows = packs.most_windows = plan.most_tokens();
    packs.longest = std::min<std::int64_t>(plan.most_tokens(), g.inputs.config.positions);
    return packs;
}

MemoryPlan plan_memory_of(const BenchGround& g, const BenchPlan& plan, const Transport& transport) {
    if (plan.trains) {
        const TrainInputs inputs = as_train_inputs(g.inputs, plan);
        TrainSchedule schedule;
        schedule.slots = plan.slots;
        return plan_training_memory({plan.sections, inputs, g.threads, g.ranks, g.replicas,
                                     g.param.type, plan.reduce, g.needs},
                                    transport, schedule);
    }
    const PackPlan packs = packs_of(g, plan);
    const int most = *std::max_element(plan.depths.begin(), plan.depths.end());
    return plan_memory(
        g.inputs.config, g.inputs.chain, g.ranks, transport, most,
        {packs, plan.sections.score, g.threads, g.param.type, g.needs, plan.offload});
}

// Of several transports two are there at a time, while weights go from one to the next.
MemoryPlan plan_all_memory(const BenchGround& g, const BenchPlan& plan) {
    MemoryPlan memory;
    for (const Transport& transport : plan.transports) {
        MemoryPlan one = plan_memory_of(g, plan, transport);
        if (memory.rows.empty() || (one.slots > 0 && memory.slots == 0)) {
            memory = std::move(one);
        }
    }
    if (plan.transports.size() > 1) {
        memory.rows.push_back({"next transport", memory.total(),
                               "while weights are copied to the parts of the next"});
    }
    return memory;
}

} // namespace

std::int64_t BenchPlan::most_tokens() const {
    return *std::max_element(tokens.begin(), tokens.end());
}

const std::vector<int>& BenchPlan::depths_of(const Transport& transport) const {
    return moves(transport) ? depths : no_depths;
}

std::int64_t BenchPlan::turns() const {
    std::int64_t turns = 0;
    for (const Transport& transport : transports) {
        turns += std::ssize(tokens) * sections.bench.pairs * std::ssize(depths_of(transport));
    }
    return turns;
}

std::int64_t BenchPlan::passes() const {
    return turns() * (sections.bench.warmup + sections.bench.steps) * passes_per_step;
}

BenchPlan plan_bench(const BenchGround& g) {
    const deck::Sections& s = g.deck.sections();
    BenchPlan plan;
    plan.trains = s.bench.job == "train";
    plan.sections = s;
    plan.tokens = s.bench.tokens;
    if (plan.tokens.empty()) {
        plan.tokens = {s.batch.tokens};
    }
    if (plan.most_tokens() < 2) {
        base::refuse(g.deck.where("batch.tokens") +
                     " = 1: one token is no target; a bench needs two or more");
    }
    plan.sections.batch.tokens = plan.most_tokens();
    plan.reduce = s.fsdp.reduce_dtype == "bf16" ? base::DType::bf16 : base::DType::f32;
    plan.passes_per_step = plan.trains ? s.train.accumulate : 1;
    if (plan.trains && s.fsdp.offload != "none") {
        base::refuse(g.deck.where("fsdp.offload") + " = " + s.fsdp.offload +
                     ": training keeps weights and optimizer in the device's memory; use "
                     "fsdp.offload = none");
    }
    plan.offload = choose_offload(g.deck, g.needs);
    const shard::ArenaPlan arena = arena_plan(g.inputs.chain, g.ranks, g.needs, g.param.type);
    choose_depths(g, arena, plan);
    plan.transports = choose_transports(g, plan, arena);
    plan.memory = plan_all_memory(g, plan);
    return plan;
}

void refuse_bench_output(const deck::Deck& deck) {
    if (deck.sections().output.existing == "resume") {
        base::refuse(deck.where("output.existing") +
                     " = resume: a bench goes on with nothing; use replace or refuse");
    }
}

std::vector<std::string> bench_notes(const deck::Deck& deck, const BenchPlan& plan) {
    std::vector<std::string> notes;
    const char* key =
        deck.sections().bench.depths.empty() ? "fsdp.forward_prefetch" : "bench.depths";
    const std::string place = deck.where(key);
    if (!plan.depths_why.empty() && place.starts_with("default:")) {
        notes.push_back(place + " is clamped: " + plan.depths_why);
    }
    constexpr std::int64_t few_pairs = 5;
    if (plan.sections.bench.pairs < few_pairs && plan.depths.size() > 1) {
        notes.push_back("bench.pairs = " + std::to_string(plan.sections.bench.pairs) +
                        ": with fewer than " + std::to_string(few_pairs) +
                        " rounds no difference can be told from chance");
    }
    return notes;
}

schedule::Plan bench_pass(const BenchPlan& plan, const model::Chain& chain, int depth) {
    schedule::Plan pass;
    if (!plan.trains) {
        return schedule::forward_plan(chain.unit_order(), 0, depth);
    }
    for (const model::TrainingUse& use : model::training_uses(chain)) {
        pass.pass.push_back(
            {use.unit, use.needs_weights,
             use.backward ? schedule::Direction::backward : schedule::Direction::forward});
    }
    pass.forward_depth = depth;
    pass.backward_depth = depth;
    pass.reshard_after_forward = plan.sections.fsdp.reshard_after_forward;
    return pass;
}

TrainInputs as_train_inputs(const BenchInputs& inputs, const BenchPlan& plan) {
    TrainInputs in;
    in.config = inputs.config;
    in.chain = inputs.chain;
    in.config_json = inputs.weights->config_json();
    in.config_path = inputs.weights->path();
    in.items.longest = std::min<std::int64_t>(plan.most_tokens(), inputs.config.positions);
    return in;
}

} // namespace foregather::job
