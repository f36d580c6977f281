// SPDX-License-Identifier: Apache-2.0
// A few passes where that is quick, two where it is not; then every rank chooses from the same
// numbers.
#include "auto_depth.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

#include "settle_common.hpp"

namespace foregather::job {
namespace {

constexpr std::int64_t most_passes = 5; // measured, after the first one
constexpr double long_enough_s = 1.0;   // to measure no more

double seconds_since(std::int64_t begin_ns, const device::Device& device) {
    return static_cast<double>(device.now_ns() - begin_ns) * 1e-9;
}

std::string in_words(const AutoDepths& chosen) {
    const schedule::DepthCandidate& least = chosen.choice.candidates.front();
    std::string text =
        in_format(100 * chosen.choice.chosen.share(), "predicted exposure %.1f %% of a step");
    if (std::max(least.forward, least.backward) == 0) {
        text += in_format(100 * least.share(), " (depth 0: %.1f %%)");
    }
    return text + in_format(chosen.seconds, ", measured in %.1f s");
}

} // namespace

AutoDepths choose_by_measuring(const AloneMeter::Parts& parts, const schedule::PlanMaker& plan,
                               const schedule::DepthRange& forward,
                               const schedule::DepthRange& backward) {
    const device::Device& device = parts.rehearsal.device();
    const std::int64_t begin = device.now_ns();
    AutoDepths result;
    {
        AloneMeter meter(parts, true);
        do {
            meter.measure(1);
            ++result.passes;
            // Rank 0's clock decides for all.
        } while (parts.control.broadcast(result.passes < most_passes &&
                                                 seconds_since(begin, device) < long_enough_s
                                             ? 1
                                             : 0) == 1);
        result.alone = meter.times().agreed;
    }
    result.choice = schedule::choose_prefetch_depths(plan, result.alone, {}, forward, backward);
    const auto& chosen = result.choice.chosen;
    for (const int depth : {chosen.forward, chosen.backward}) {
        if (parts.control.max(depth) != depth || parts.control.max(-depth) != -depth) {
            base::fail("ranks chose different depths from the same times");
        }
    }
    result.seconds = seconds_since(begin, device);
    return result;
}

AutoDepths choose_without_measuring(const std::string& reason) {
    AutoDepths result;
    result.choice.reason = reason;
    return result;
}

schedule::DepthRange range_of(const Depth& allowed) {
    return {allowed.automatic ? 0 : allowed.units, allowed.units};
}

Depth chosen_of(const Depth& allowed, int units, const AutoDepths& chosen) {
    if (!allowed.automatic) {
        return allowed;
    }
    if (!chosen.measured()) {
        return {units, chosen.choice.reason, true};
    }
    const std::string told = in_words(chosen);
    std::string why = told + ": " + chosen.choice.reason;
    if (units == allowed.units && !allowed.why.empty()) {
        why += "; no more, since " + allowed.why;
    }
    return {units, why, true, chosen.choice.resident ? why : told};
}

Became became(const Depth& forward, const Depth& backward) {
    Became values;
    for (const auto& [key, depth] : {std::pair{"fsdp.forward_prefetch", &forward},
                                     std::pair{"fsdp.backward_prefetch", &backward}}) {
        if (depth->automatic) {
            values[key] = std::to_string(depth->units);
        }
    }
    return values;
}

std::vector<io::Table> choice_tables(const AutoDepths& chosen, const schedule::Plan& pass,
                                     const model::Chain& chain) {
    if (!chosen.measured()) {
        return {};
    }
    const schedule::PassTimes& alone = chosen.alone;
    std::vector<std::string> units, directions;
    std::vector<double> gather, reduce, replica, optimizer;
    for (const schedule::Use& use : pass.pass) {
        const auto u = static_cast<std::size_t>(use.unit);
        const bool backward = use.direction == schedule::Direction::backward;
        units.push_back(chain.units[u].name);
        directions.emplace_back(backward ? "backward" : "forward");
        gather.push_back(use.needs_weights ? alone.gather[u] : 0);
        reduce.push_back(backward ? alone.reduce[u] : 0);
        replica.push_back(backward ? alone.replica[u] : 0);
        optimizer.push_back(backward ? alone.optimizer[u] : 0);
    }
    std::vector<std::int64_t> forward_depth, backward_depth, taken;
    std::vector<double> step, exposed;
    for (const schedule::DepthCandidate& c : chosen.choice.candidates) {
        forward_depth.push_back(c.forward);
        backward_depth.push_back(c.backward);
        step.push_back(c.step);
        exposed.push_back(c.exposed_gather);
        taken.push_back(c.forward == chosen.choice.chosen.forward &&
                                c.backward == chosen.choice.chosen.backward
                            ? 1
                            : 0);
    }
    const std::string longest = "median of the passes measured, the longest of any rank";
    return {{"/timing/alone",
             {{"unit", "", "unit of the use", units},
              {"direction", "", "order of uses", directions},
              {"compute_s", "s", "compute with nothing beside it; " + longest, alone.compute},
              {"gather_s", "s", "gather of the unit likewise", gather},
              {"reduce_s", "s", "reduction of its gradient likewise", reduce},
              {"replica_s", "s", "sum of its gradient over replicas likewise", replica},
              {"optimizer_s", "s", "update of its weights likewise, by size", optimizer}},
             {{"between_s", alone.between}, {"passes", chosen.passes}},
             "use"},
            {"/timing/choice",
             {{"forward_depth", "1", "depth in forward", forward_depth},
              {"backward_depth", "1", "depth in backward", backward_depth},
              {"step_s", "s", "predicted: replayed with the times of /timing/alone", step},
              {"exposed_s", "s", "of it, exposed to gathers", exposed},
              {"chosen", "1", "the depth of the run", taken}},
             {{"reason", chosen.choice.reason}, {"seconds", chosen.seconds}},
             "candidate"}};
}

} // namespace foregather::job
