// SPDX-License-Identifier: Apache-2.0
// The measurement of one configuration, a transport and a number of tokens: rounds in which every
// depth has a turn, in an order that a seed draws, and everything alone once a round. It decides no
// figure of figures: what turns say is judged elsewhere.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "alone.hpp"
#include "bench_stage.hpp"
#include "span_table.hpp"

namespace foregather::job {

// Seconds of one step of a turn, of one direction on this rank, as Witness defines them.
struct SideSeconds {
    double gather = 0, compute = 0, exposed = 0, overlapped = 0;
    double gathers = 0; // how many
};
// One turn on one rank: means over its measured steps. It travels as bytes.
struct Turn {
    std::int64_t configuration = 0, round = 0, order = 0; // order: of the turn in its round
    std::int64_t depth = 0;
    std::array<SideSeconds, 2> sides{}; // by direction
    double reduce = 0, exposed_reduce = 0, overlapped_reduce = 0;
    double optimizer = 0, between = 0;
    double step = 0; // from the end of the step before to the end of this one
};

// The order of turns in a round: a permutation of [0, depths), another for each seed and round.
std::vector<std::int64_t> order_of_turns(std::int64_t depths, std::int64_t seed,
                                         std::int64_t round);

class BenchTurns {
public:
    // Opens a source of each depth in the stage's home; all must outlive this object.
    BenchTurns(BenchStage& stage, const BenchStage::Parts& parts, std::vector<int> depths);

    struct Measured {
        std::vector<Turn> turns; // of this rank, in the order in which they were run
        Alone alone;
        int allocations = 0; // of device memory, while turns ran
    };
    // Collective; blocks. `number` of the configuration; `pack` is what every pass computes;
    // `told(round)` after each round. Ends early, with no times alone, where goes_on() says no
    // before a turn: on all ranks alike.
    Measured run(std::int64_t number, const BenchPack& pack,
                 const std::function<void(std::int64_t round)>& told,
                 const std::function<bool()>& goes_on);

    // Of each depth, in the order of `depths`: what it did over all turns.
    schedule::TimedSource& source(std::size_t depth) { return *sources_[depth]; }
    // Spans of the latest turn of each depth, one turn after the other, with passes numbered
    // through; as pack_spans() gives them.
    std::string latest_spans(const ClockOffsets& clock) const;

private:
    Turn play(std::size_t depth);
    std::int64_t steps() const;

    BenchStage& stage_;
    BenchStage::Parts p_;
    std::vector<int> depths_;
    std::vector<schedule::TimedSource*> sources_; // owned by the home
    std::vector<std::size_t> latest_;             // depths by their latest turn
    std::int64_t played_ = 0;                     // turns
};

} // namespace foregather::job
