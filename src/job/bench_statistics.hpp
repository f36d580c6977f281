// SPDX-License-Identifier: Apache-2.0
// Numbers made of numbers: medians, ratios with bootstrap intervals, lines, and what two
// measurements of a forward pass say of the prefetch. Pure; where they come from is the caller's.
#pragma once

#include <cstdint>
#include <vector>

namespace foregather::job {

// The middle value, or the mean of the two in the middle; 0 of nothing.
double median(std::vector<double> values);

// What was measured in pairs, one after the other.
struct Ratio {
    double median = 1;        // of the pairs' ratios
    double low = 1, high = 1; // of the 95 % percentile bootstrap interval of that median
    bool differs() const { return low > 1 || high < 1; }
};
// values[i] / reference[i] for each pair i, resampled 4000 times by std::mt19937_64 of `seed`
// (Efron and Tibshirani, An Introduction to the Bootstrap, section 13.3): the same in every run.
// Of fewer than five pairs the interval is (0, infinity): nothing is known.
Ratio paired_ratio(const std::vector<double>& values, const std::vector<double>& reference,
                   std::uint64_t seed);

// y = at_zero + slope x, by least squares; of equal x, or of one point, through the origin.
struct Line {
    double at_zero = 0, slope = 0;
    bool proportional = true; // through the origin, for want of points
    double at(double x) const { return at_zero + slope * x; }
};
// A line that would be negative at 0 goes through the origin.
Line fit_line(const std::vector<double>& x, const std::vector<double>& y);

// How much longer work took for as long as other work ran beside it, from its length alone and
// with the other: in `beside` seconds of overlap it lost what it took longer. 0.3 = 1.3 times. At
// least 0 and at most 3 (more is noise, not contention); 0 where less than a fiftieth of it was
// beside anything.
double slowdown(double alone, double with_others, double beside);
inline constexpr double most_slowdown = 3;

// Forward passes without and with the prefetch: seconds per step of a rank.
struct Forward {
    double gather = 0, exposed = 0, compute = 0;
    double whole() const { return compute + exposed; }
};
struct Comparison {
    double before = 0, after = 0; // forward as a whole: compute + exposed
    // What `before` would come to if all but the first of its gathers ran beside compute and slowed
    // nothing, or compute beside all but the last of the gathers.
    double perfect = 0;
    double hidden = 0; // exposed before - exposed after
    double tax = 0;    // compute after - compute before
    // tax / hidden, where at least a fiftieth of `before` was hidden and compute was not faster: of
    // less, or of a tax below 0, it says nothing.
    double lost = 0;
    bool lost_known = false;
};
Comparison compare(const Forward& before, const Forward& after, std::int64_t gathers);

} // namespace foregather::job
