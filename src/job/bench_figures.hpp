// SPDX-License-Identifier: Apache-2.0
// What the turns of a bench say: figures of each depth against each other, against the same work
// alone and against the schedule's limit, and what to change. Pure; figures are defined here,
// before they are shown or stored.
#pragma once

#include <string>
#include <vector>

#include <foregather/schedule/depth_choice.hpp>

#include "bench_statistics.hpp"
#include "bench_turns.hpp"

namespace foregather::job {

// Where figures come from. All are of one rank, the slowest: what it did at a depth, medians over
// its turns, and what its parts took alone, medians over rounds. Limit, bound, prediction and
// recommendation replay these very times alone: a limit follows from the columns beside it. The
// longest of any rank, unit by unit, would belong to no rank, and be longer than a step where noise
// hits another rank at each unit; /bench/alone holds both.

// Of one direction, seconds per step of the slowest rank, medians over turns.
struct SideFigures {
    double gather_alone = 0, gather = 0;   // the gather stream was busy: by itself; at the depth
    double compute_alone = 0, compute = 0; // the compute stream was in uses
    double exposed = 0, overlapped = 0;
    double gathers = 0;        // how many
    double gathered_bytes = 0; // of whole units
    double tax() const { return compute_alone > 0 ? compute / compute_alone - 1 : 0; }
};

// One depth of one configuration.
struct DepthFigures {
    int configuration = 0;
    std::int64_t depth = 0;
    int slots = 0;
    std::array<SideFigures, 2> sides{}; // by direction
    // reduce: of all that reductions do, with the sums over replicas; alone: replica_alone of it.
    double reduce_alone = 0, replica_alone = 0, reduce = 0, exposed_reduce = 0;
    double optimizer = 0, optimizer_alone = 0;
    double between = 0, between_alone = 0; // per step
    double step = 0;
    Ratio ratio;          // of the step to that of the reference depth, round by round
    double limit = 0;     // the step of the schedule replayed with the times alone
    double predicted = 0; // the same with the contention that was fitted
    // The longer of all gathers and all computes with the optimizer: no schedule is faster.
    double bound = 0;
    std::string verdict; // of the prefetch, over all ranks and turns; "" where nothing moves

    // As nccl-tests defines them: bytes of whole units / time, and of it what a link carries.
    // direction summed over.
    double algorithm_bandwidth(bool alone) const;
    // Nothing is gathered in a step, though there are gathers: all units stay in their slots.
    bool resident = false;
};

// One transport and number of tokens.
struct ConfigurationFigures {
    std::string transport;
    std::int64_t tokens = 0, documents = 0, longest = 0;
    double attended = 0;
    int slowest_rank = 0; // whose figures these are: the one that computed longest over all turns
    std::int64_t reference = 0; // depth that ratios are to: the least
    Alone alone;                // `own` of the slowest rank: what is replayed
    schedule::Contention contention;
    double overlap_s = 0; // that it was fitted to, over depths >= 1
    std::vector<DepthFigures> depths;
    bool moves = false;

    const DepthFigures* find(std::int64_t depth) const;
};

// What to change, from predictions with the contention that was fitted.
struct Recommendation {
    bool any = false; // false: nothing moves
    std::int64_t depth = 0;
    int slots = 0;
    double exposed_share = 0; // of the step, to gathers, predicted at that depth
    std::string reason;       // for the depth
    bool resident = false;    // all units stay in their slots at that depth: there is no T*
    // What to run with, as it is typed: "--fsdp.forward_prefetch=1 --batch.tokens=832"; "" if !any.
    std::string options;
    // Where measured steps say otherwise: "depth 1 measured 1.04 x ..."; "" if they do not.
    std::string doubt;
    bool hidden = false; // it is below 2 %
    double gain = 0;     // predicted step at the recommended depth / at the reference depth
    // Tokens of a rank and step from which less than 2 % of the step is exposed at that depth; 0:
    // none up to 2^24.
    std::int64_t tokens = 0;
    bool proportional = true; // computes were taken as proportional to tokens, for want of points
};

inline constexpr double hidden_share = 0.02; // of a step: below it gathers count as hidden

struct BenchFacts { // what figures need of the run
    const BenchPlan& plan;
    const model::Chain& chain;
    int shard_ranks = 1;
    base::DType gathered = base::DType::f32;
};

// turns[rank]: all of that rank's in this configuration. `alone[rank]`: each rank's own times.
ConfigurationFigures judge_turns(const BenchFacts& facts, int configuration,
                                 const Transport& transport, const BenchPack& pack,
                                 const std::vector<std::vector<Turn>>& turns,
                                 const std::vector<schedule::PassTimes>& own,
                                 const schedule::PassTimes& agreed);

// `same`: all configurations of this transport, for the line of computes over tokens.
Recommendation recommend(const BenchFacts& facts, const ConfigurationFigures& of,
                         const std::vector<const ConfigurationFigures*>& same);

// A plan with the passes and ends of one step at a depth.
schedule::Plan step_plan(const BenchFacts& facts, std::int64_t depth);

} // namespace foregather::job
