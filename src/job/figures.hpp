// SPDX-License-Identifier: Apache-2.0
// What a rank measured, and what rank 0 makes of all ranks' figures. Figures are defined here,
// before they are shown or stored.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <foregather/mesh/control.hpp>
#include <foregather/schedule/gradient_reducer.hpp>
#include <foregather/schedule/witness.hpp>

namespace foregather::job {

// Phases of a rank. Those of the host's main thread follow each other; what streams do is their own
// and runs beside them.
enum Phase : std::size_t {
    phase_setup,   // from the start of the process to the load: inputs, ranks, memory, results file
    phase_load,    // this rank's parts of the weights, from the file into the arena
    phase_compute, // the compute stream was busy with forward uses
    phase_product, // of compute, in the product library; mean over the rank's threads
    phase_gather,  // the gather stream was busy for forward uses
    phase_exposed, // the compute stream was idle while a forward use's gather ran or waited
    phase_wait,    // the main thread waited for a pass's results
    phase_write,   // scores into the results file
    phase_flush,   // results to disk
    phase_run,     // from the first pass enqueued to the last result fetched
    // of training alone
    phase_backward_compute, // with what is computed again
    phase_backward_gather,
    phase_backward_exposed,
    phase_reduce,         // the reduce stream was busy
    phase_exposed_reduce, // the compute stream was idle: it waited for a gradient slot or a sum
    phase_optimizer,      // the compute stream updated weights
    phase_evaluate,       // of the main thread, with its waits
    phase_step_wait,      // of phase_wait, for the sums by which a step is decided
    phase_save,           // checkpoints
    phase_count
};
struct NamedPhase {
    Phase phase;
    const char* name;
};
// Those of a job, in the order in which they are told.
const std::vector<NamedPhase>& score_phases();
const std::vector<NamedPhase>& train_phases();

// What the prefetch of one direction did; trivially copyable.
struct DirectionFigures {
    std::int64_t verdict = 0, issued_ahead = 0, judged = 0, gathers = 0, gathers_ahead = 0;
    std::int64_t order_wrong = 0;
    double begun_ahead = 0, begun_share = 0, late_median_s = 0, late_p95_s = 0;
    double exposed_s = 0, overlapped_s = 0;
    std::array<char, 200> reason{};
};

// What the loop and the reductions of training did; trivially copyable.
struct TrainCounts {
    std::int64_t steps = 0, passes = 0;
    std::int64_t reductions = 0, replica_reductions = 0;
    std::int64_t bytes_reduced = 0; // received from other ranks by reductions
    std::int64_t longest_pack = 0;  // tokens
    double reduce_overlapped_s = 0;
    double reduce_bytes_per_s = 0; // received / time of the reductions
    double attended = 0;           // over the pieces computed: length x (length + 1)
};

// It travels as bytes. Of one direction of training, its own DirectionFigures are the forward
// ones.
struct RankFigures : DirectionFigures {
    std::array<double, phase_count> seconds{};
    std::array<std::int64_t, phase_count> calls{};
    std::int64_t issued = 0, waited = 0, freed = 0;
    std::int64_t packs = 0, tokens = 0, scored = 0, head_rows = 0;
    std::int64_t peak_host_bytes = 0, proportional_bytes = 0, device_bytes = 0;
    std::int64_t bytes_copied_up = 0; // of its own weights, from host memory
    std::int64_t bytes_read = 0, bytes_received = 0, bytes_written = 0;
    std::int64_t threads = 0, threads_seen = 0, allocations_while_running = 0;
    double longest_gather_s = 0, longest_silence_s = 0, longest_standstill_s = 0;
    double entropy_sum = 0;        // over rows where it is finite, nat
    double gather_bytes_per_s = 0; // received / time of the gathers
    DirectionFigures backward;
    TrainCounts train;
};

void take(RankFigures& figures, const schedule::PrefetchFigures& prefetch,
          schedule::Direction direction = schedule::Direction::forward);
// Of the reduce stream: seconds, calls, counts.
void take(RankFigures& figures, const schedule::ReduceFigures& reduce);

// Of all ranks, on rank 0; elsewhere empty.
std::vector<RankFigures> gather_figures(const mesh::Control& control, const RankFigures& mine);

// The prefetch of the run in one direction: worst verdict of ranks with documents, extremes over
// ranks.
struct RunPrefetch {
    schedule::Verdict verdict = schedule::Verdict::inert;
    std::string reason;
    int verdict_rank = 0;
    bool order_wrong = false;
    DirectionFigures worst;                 // of the rank whose verdict it is
    double exposed_s = 0, overlapped_s = 0; // mean over ranks with documents
    std::int64_t issued_ahead = 0;          // least of any rank
    std::int64_t gathers = 0, gathers_ahead = 0;
};
RunPrefetch judge_run(const std::vector<RankFigures>& ranks,
                      schedule::Direction direction = schedule::Direction::forward);

struct Spread {
    double min = 0, mean = 0, max = 0;
    int rank_of_max = 0;
};
Spread spread(const std::vector<RankFigures>& ranks, Phase phase);

// Peak resident set of this process, and its proportional set now (shared pages divided by their
// users).
std::int64_t peak_host_bytes();
std::int64_t proportional_bytes();

} // namespace foregather::job
