// SPDX-License-Identifier: Apache-2.0
// Two depths of a bench in words and numbers, in the order in which they are told. What follows
// from them is computed by bench_statistics.cpp.
#include "bench_results.hpp"

namespace foregather::job {

ComparisonTable comparison_of(const ConfigurationFigures& c, const Recommendation& r, bool trains) {
    const DepthFigures* before = c.find(c.reference);
    const DepthFigures* after = nullptr;
    for (const std::int64_t depth : {r.depth, std::int64_t{1}, c.depths.back().depth}) {
        after = after == nullptr && depth != c.reference ? c.find(depth) : after;
    }
    if (before == nullptr || after == nullptr) {
        return {};
    }
    ComparisonTable table{before->depth, after->depth, {}};
    const auto seconds = [&](const std::string& quantity, double a, double b) {
        table.rows.push_back({quantity, "s", a, b});
    };
    for (std::size_t side = 0; side < (trains ? 2U : 1U); ++side) {
        const std::string of = side == 0 ? "forward" : "backward";
        const SideFigures& a = before->sides[side];
        const SideFigures& b = after->sides[side];
        seconds(of + " gather", a.gather, b.gather);
        seconds(of + " exposed", a.exposed, b.exposed);
        seconds(of + " compute", a.compute, b.compute);
    }
    if (trains) {
        seconds("reduce", before->reduce, after->reduce);
        seconds("reduce exposed", before->exposed_reduce, after->exposed_reduce);
    }
    seconds("step", before->step, after->step);
    const auto forward = [](const DepthFigures& d) {
        return Forward{d.sides[0].gather, d.sides[0].exposed, d.sides[0].compute};
    };
    const Comparison derived = compare(forward(*before), forward(*after),
                                       static_cast<std::int64_t>(before->sides[0].gathers + 0.5));
    seconds("forward as a whole", derived.before, derived.after);
    table.rows.push_back({"perfect overlap without tax", "s", 0, derived.perfect, true});
    table.rows.push_back({"hidden", "s", 0, derived.hidden, true});
    table.rows.push_back({"tax", "s", 0, derived.tax, true});
    table.rows.push_back({"share of the hidden time lost to the tax", "", 0, derived.lost, true,
                          derived.lost_known});
    return table;
}

} // namespace foregather::job
