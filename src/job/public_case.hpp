// SPDX-License-Identifier: Apache-2.0
// Figures that others have published, and what the replay makes of them: what is fitted, what is
// predicted, how far off it is. Nothing here is adjusted to look right.
#pragma once

#include <string>
#include <vector>

#include <foregather/model/config.hpp>
#include <foregather/schedule/replay.hpp>

namespace foregather::job {

// Forward of a model of 32 billion parameters on 2 nodes of 8 H200, with FSDP2: seconds per rank
// and step, before and after a prefetch of one layer.
struct PublishedForward {
    double gather_before = 0, compute_before = 0; // before, all gathers are exposed
    double gather_after = 0, exposed_after = 0, compute_after = 0;
    double step_before = 0, step_after = 0;

    double before() const { return compute_before + gather_before; }
    double after() const { return compute_after + exposed_after; }
};
inline constexpr PublishedForward without_offload{2.99, 8.54, 6.21, 1.40, 9.74, 44.03, 43.27};
inline constexpr PublishedForward with_offload{3.10, 8.41, 5.60, 1.34, 9.11, 61.31, 59.27};
inline constexpr int public_layers = 64;

// What is free: three inputs, fitted to the three figures after the prefetch of one case.
struct CaseFit {
    schedule::Contention contention;
    // Of all gathers, those with nothing to compute beside them, whatever the cause: passes that
    // compute nothing.
    double alone = 0;
};

struct PredictedForward {
    double gather = 0, exposed = 0, compute = 0;

    double forward() const { return compute + exposed; }
};

// The replay of passes over equal layers, one gathered ahead; each pass begins anew, so its first
// gather is exposed. Totals over a step: how many passes it has does not matter.
PredictedForward replay_case(double gather, double compute, const CaseFit& fit);

// While gathers and computes overlap for O seconds in all, compute that would have taken c takes
// c + O k / (1 + k), and gathers g = exposed + O / (1 + l): which gives both slowdowns, k and l.
// `alone` is what makes the replay's exposed time the published one.
CaseFit fit_case(const PublishedForward& figures);

// The table: the fit of the case without offload, the prediction of the other, differences.
std::string public_case_text();

// Throughput per GPU that others published to change by so much, and where it is found in a sweep.
inline constexpr double published_scaling = -0.023;     // FSDP2, Llama 3.1 8B, 8 to 128 H100
inline constexpr double published_copy_engines = 0.024; // gathers by copy engines, for SMs'

struct Sweep; // plan_sweep.hpp
// The shapes of Llama 3.1 8B, which the first is of.
bool is_published_model(const model::ModelConfig& config);
// Both beside what the deepest rows of 8 and 128 ranks say; that such rows are needed, if there are
// none. why_not: what was planned in the place of training that model on H100; "" where nothing.
std::string published_checks_text(const Sweep& sweep, const std::string& why_not);

} // namespace foregather::job
