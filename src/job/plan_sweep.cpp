// SPDX-License-Identifier: Apache-2.0
// Settings in nested order, and the search for T*.
#include "plan_sweep.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <foregather/base/error.hpp>

#include "plan_memory.hpp"

namespace foregather::job {
namespace {

constexpr base::Elements most_hidden_tokens = base::Elements{1} << 26;

class DescribedTimes final : public TimeSource {
public:
    DescribedTimes(const deck::Deck& deck, const PlannedModel& model)
        : deck_(deck), model_(model), weights_(planned_type(deck)),
          reduce_(deck.sections().fsdp.reduce_dtype == "bf16" ? base::DType::bf16
                                                              : base::DType::f32) {
        const deck::Sections& s = deck.sections();
        const std::int64_t most = *std::max_element(s.plan.ranks.begin(), s.plan.ranks.end());
        over_nodes_ = !s.machine.ranks_per_node.given() ||
                      static_cast<double>(most) > s.machine.ranks_per_node.value;
        machine_ = machine_of(deck, weights_, over_nodes_);
        for (const std::string& key : keys()) {
            basis_ = worse(basis_, basis_of(deck, key));
        }
    }

    schedule::PassTimes times(const Setting& setting,
                              const shard::ArenaPlan& arena) const override {
        return times_on(machine_, model_, arena, setting, reduce_,
                        deck_.sections().train.accumulate);
    }
    schedule::Contention contention() const override { return machine_.contention; }
    std::string basis(const Setting& /*setting*/) const override { return basis_; }
    int ranks_per_node() const override { return machine_.links.ranks_per_node; }
    std::string kind() const override { return deck_.sections().machine.kind; }
    double emulated_rate() const override { return 0; }
    base::DType weights() const override { return weights_; }
    base::Elements document(base::Elements tokens) const override {
        return document_of(deck_.sections().plan, model_.config, tokens);
    }
    std::vector<std::string> keys() const override { return machine_keys(weights_, over_nodes_); }
    std::string origin() const override {
        const deck::Sections& s = deck_.sections();
        return "machine    " + s.machine.name + " (" + s.plan.machine + ")";
    }

private:
    const deck::Deck& deck_;
    const PlannedModel& model_;
    base::DType weights_, reduce_;
    bool over_nodes_ = false;
    Machine machine_;
    std::string basis_;
};

class Sweeper {
public:
    Sweeper(const deck::Deck& deck, const PlannedModel& model, const TimeSource& source)
        : s_(deck.sections()), source_(source),
          memory_(deck, model, source.kind(), source.weights(), source.ranks_per_node()) {}

    Sweep run() {
        for (const std::int64_t ranks : s_.plan.ranks) {
            for (const std::int64_t shard : shards_of(s_.plan)) {
                group(static_cast<int>(ranks), shard);
            }
        }
        compare();
        return std::move(result_);
    }

private:
    Setting setting(int ranks, std::int64_t shard, base::Elements tokens) const {
        return {ranks,
                shard == 0 ? ranks : static_cast<int>(shard),
                {tokens, source_.document(tokens), memory_.weights(), memory_.needs().row_multiple,
                 s_.train.recompute == "layer"}};
    }

    void group(int ranks, std::int64_t shard) {
        const shard::ArenaPlan arena =
            memory_.arena(setting(ranks, shard, s_.plan.tokens.front()).shard);
        const std::size_t first = result_.rows.size();
        for (const base::Elements tokens : s_.plan.tokens) {
            const Setting at = setting(ranks, shard, tokens);
            result_.units.push_back({at, arena, source_.times(at, arena)});
            for (const std::int64_t depth : s_.plan.depths) {
                result_.rows.push_back(row(at, arena, shard, static_cast<int>(depth)));
            }
        }
        // T* knows no tokens: once for each depth.
        for (std::size_t d = 0; d < s_.plan.depths.size(); ++d) {
            const std::int64_t hidden = hidden_from(result_.rows[first + d], arena, shard);
            for (std::size_t r = first + d; r < result_.rows.size(); r += s_.plan.depths.size()) {
                result_.rows[r].hidden_from = hidden;
                warn(result_.rows[r]);
            }
        }
    }

    PlanRow row(const Setting& at, const shard::ArenaPlan& arena, std::int64_t shard, int depth) {
        PlanRow row;
        row.setting = at;
        row.asked_shard = shard;
        row.asked_depth = depth;
        row.basis = source_.basis(at);
        const PlannedPass pass = memory_.pass(at, arena, depth);
        row.forward = pass.forward;
        row.backward = pass.backward;
        row.passes = pass.plan.passes;
        const MemoryPlan memory = memory_.plan(at, pass);
        if (result_.rows.empty()) {
            result_.first_memory = memory;
        }
        row.slots = memory.slots;
        row.slot_bytes = memory.slot_bytes;
        row.memory = memory_.counted(memory);
        row.fits = memory_.fits(at, memory);
        row.replayed =
            schedule::replay(pass.plan, result_.units.back().times, source_.contention());
        row.untaxed_step = schedule::replay(pass.plan, result_.units.back().times).step;
        const double tokens = static_cast<double>(row.passes * at.load.tokens);
        row.per_rank = tokens / row.replayed.step;
        row.tokens_per_s = at.ranks * row.per_rank;
        return row;
    }

    double exposed_share(const PlanRow& row, const shard::ArenaPlan& arena, std::int64_t shard,
                         base::Elements tokens) const {
        const Setting at = setting(row.setting.ranks, shard, tokens);
        const schedule::Replayed replayed =
            schedule::replay(memory_.pass(at, arena, row.asked_depth).plan,
                             source_.times(at, arena), source_.contention());
        return replayed.exposed() / replayed.step;
    }

    // The smallest number of tokens, to 1 %, from which the exposed share is below hidden_share:
    // more tokens compute longer beside the same gathers.
    std::int64_t hidden_from(const PlanRow& row, const shard::ArenaPlan& arena,
                             std::int64_t shard) const {
        base::Elements high = 64;
        while (exposed_share(row, arena, shard, high) >= hidden_share) {
            if (high >= most_hidden_tokens) {
                return 0;
            }
            high *= 4;
        }
        base::Elements low = high == 64 ? 0 : high / 4;
        while (high - low > std::max<base::Elements>(1, high / 100)) {
            const base::Elements middle = (low + high) / 2;
            (exposed_share(row, arena, shard, middle) < hidden_share ? high : low) = middle;
        }
        return high;
    }

    void warn(PlanRow& row) const {
        char text[160];
        if (row.exposed_share() >= hidden_share) {
            std::snprintf(text, sizeof(text), "exposed %.1f %%: %s", 100 * row.exposed_share(),
                          row.hidden_from == 0 ? "no number of tokens hides the gathers"
                                               : "fewer tokens a rank than T*");
            row.warnings.emplace_back(text);
        }
        if (row.fits == "no") {
            row.warnings.emplace_back("does not fit in memory");
        }
        if (std::max(row.forward, row.backward) < row.asked_depth) {
            row.warnings.push_back("depth " + std::to_string(row.asked_depth) + " is clamped to " +
                                   std::to_string(std::max(row.forward, row.backward)));
        }
    }

    // With the fewest ranks that have the same shard, tokens and depth as they were asked for.
    void compare() {
        for (PlanRow& row : result_.rows) {
            const PlanRow* fewest = &row;
            for (const PlanRow& other : result_.rows) {
                if (other.asked_shard == row.asked_shard && other.asked_depth == row.asked_depth &&
                    other.setting.load.tokens == row.setting.load.tokens &&
                    other.setting.ranks < fewest->setting.ranks) {
                    fewest = &other;
                }
            }
            row.efficiency = row.per_rank / fewest->per_rank;
        }
    }

    const deck::Sections& s_;
    const TimeSource& source_;
    PlannedMemory memory_;
    Sweep result_;
};

} // namespace

std::unique_ptr<TimeSource> described_times(const deck::Deck& deck, const PlannedModel& model) {
    return std::make_unique<DescribedTimes>(deck, model);
}

Sweep sweep(const deck::Deck& deck, const PlannedModel& model, const TimeSource& source) {
    return Sweeper(deck, model, source).run();
}

} // namespace foregather::job
