// SPDX-License-Identifier: Apache-2.0
// The accounting at the end of a training run, and its lines on the way: text for people, JSON for
// output.log, tables for the results file. One set of numbers feeds all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <foregather/deck/deck.hpp>
#include <foregather/io/checkpoint_file.hpp>

#include "checkpoints.hpp"
#include "report_parts.hpp"
#include "train_loop.hpp"
#include "train_plan.hpp"

namespace foregather::job {

// What a rank reads off its parts when the run is over, beside what measure() does.
struct TrainMeasured {
    const schedule::TimedSource& source;     // of steps
    const schedule::TimedSource* evaluation; // nullptr: there are none
    const schedule::GradientReducer& reducer;
    const LoopFigures& loop;
    const Checkpoints* checkpoints;                      // nullptr: none were written
    std::vector<const comm::Communicator*> reductions{}; // those there are
};
// Adds counts and times of the loop, the directions, the reductions and the saves; backward
// computes are told apart from forward ones by the source.
void measure_training(RankFigures& figures, const TrainMeasured& run);

struct TrainFacts { // known on rank 0 when the run is over
    const deck::Deck& deck;
    const model::ModelConfig& config;
    const model::Chain& chain;
    const mesh::Topology& topology;
    const Transport& transport;
    std::string backend_kind, backend_why, product;
    device::Facts device; // of rank 0
    base::DType weights_seen = base::DType::f32, reduced_as = base::DType::f32;
    const MemoryPlan& memory;
    const TrainSchedule& schedule;
    std::vector<RankFigures> ranks;
    RunPrefetch forward, backward;    // judge_run() of each direction
    std::string began_with;           // "random weights of init_seed 3", a file and what of it
    const io::TrainingState& state;   // at the end
    std::int64_t first_step = 1;      // of this start
    std::vector<double> step_seconds; // of this start's steps
    std::vector<Checkpoints::Saved> saved;
    double first_compute_s = 0; // from the start of the process to the first pass's compute
};

// Of this start's steps; a step that was not applied counts.
double train_tokens_per_second(const TrainFacts& facts);
// Of the model: forward and twice that backward; what is computed again is not counted.
double train_flop_per_second(const TrainFacts& facts);

std::string train_report(const TrainFacts& facts, const std::vector<std::string>& notes);
// What could be changed, from what was measured: one sentence each.
std::vector<std::string> train_advice(const TrainFacts& facts);
// units, prefetch with a row for each direction, phases, ranks.
std::vector<io::Table> train_timing_tables(const TrainFacts& facts);

// A step on its way: the line on stdout, and the object in output.log, with the names and units of
// the columns of /train. peak_bytes: the largest resident set of any rank so far.
std::string step_line(const StepFacts& step, std::int64_t steps, base::Bytes peak);
nlohmann::json step_object(const StepFacts& step, base::Bytes peak);
std::string evaluation_line(const Evaluation& evaluation, std::int64_t steps);
nlohmann::json evaluation_object(const Evaluation& evaluation);
std::string save_line(const Checkpoints::Saved& saved);
nlohmann::json save_object(const Checkpoints::Saved& saved, std::int64_t step);

} // namespace foregather::job
