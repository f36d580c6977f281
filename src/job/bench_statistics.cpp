// SPDX-License-Identifier: Apache-2.0
// Sorting, resampling, fitting.
#include "bench_statistics.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace foregather::job {
namespace {

constexpr int resamples = 4000;
constexpr std::size_t least_pairs =
    5; // of fewer, the extremes cover the median less than 9 times of 10
constexpr double least_overlap = 0.02; // of work: less says nothing of what it was slowed by
constexpr double least_hidden = 0.02;  // of forward as a whole

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of sorted values, nearest rank.
double quantile(const std::vector<double>& sorted, double q) {
    const auto last = static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<std::size_t>(q * last + 0.5)];
}

} // namespace

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Ratio paired_ratio(const std::vector<double>& values, const std::vector<double>& reference,
                   std::uint64_t seed) {
    const std::size_t pairs = std::min(values.size(), reference.size());
    std::vector<double> ratios;
    for (std::size_t i = 0; i < pairs; ++i) {
        ratios.push_back(values[i] / reference[i]);
    }
    if (pairs < least_pairs) {
        return {pairs > 0 ? median(ratios) : 1, 0, std::numeric_limits<double>::infinity()};
    }
    std::mt19937_64 random(seed);
    std::vector<double> medians;
    std::vector<double> drawn(pairs);
    for (int i = 0; i < resamples; ++i) {
        for (double& one : drawn) {
            one = ratios[random() % pairs]; // off by less than 1e-16 of a share
        }
        medians.push_back(median(drawn));
    }
    std::sort(medians.begin(), medians.end());
    return {median(ratios), quantile(medians, 0.025), quantile(medians, 0.975)};
}

Line fit_line(const std::vector<double>& x, const std::vector<double>& y) {
    Line line;
    if (x.empty()) {
        return line;
    }
    const double mean_x = mean(x);
    const double mean_y = mean(y);
    double xx = 0;
    double xy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    if (xx > 0 && xy > 0 && mean_y - xy / xx * mean_x >= 0) {
        return {mean_y - xy / xx * mean_x, xy / xx, false};
    }
    line.slope = mean_x > 0 ? mean_y / mean_x : 0;
    return line;
}

double slowdown(double alone, double with_others, double beside) {
    if (beside <= least_overlap * alone || with_others <= alone) {
        return 0;
    }
    // In an overlap of length o, work that goes on at 1 / (1 + s) loses o s / (1 + s).
    const double share = (with_others - alone) / beside;
    return share >= 1 ? most_slowdown : std::min(share / (1 - share), most_slowdown);
}

Comparison compare(const Forward& before, const Forward& after, std::int64_t gathers) {
    Comparison c;
    c.before = before.whole();
    c.after = after.whole();
    const auto n = static_cast<double>(std::max<std::int64_t>(gathers, 1));
    c.perfect = before.gather <= before.compute ? before.compute + before.gather / n
                                                : before.gather + before.compute / n;
    c.hidden = before.exposed - after.exposed;
    c.tax = after.compute - before.compute;
    c.lost_known = c.tax >= 0 && c.hidden > 0 && c.hidden >= least_hidden * c.before;
    c.lost = c.lost_known ? c.tax / c.hidden : 0;
    return c;
}

} // namespace foregather::job
