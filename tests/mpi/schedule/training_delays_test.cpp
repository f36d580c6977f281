// SPDX-License-Identifier: Apache-2.0
// Whatever the times of gathers, computes, optimizers, copies and reductions, on whichever rank, no
// compute sees the weights of another optimizer step and no optimizer another sum: random runs with
// random delays in all of them, from 50 seeds.
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_groups.hpp"
#include "../../support/toy_training.hpp"

using namespace foregather;
using std::chrono::microseconds;
using tests::DelayedCommunicator;
using tests::ToyGroups;
using tests::ToyTraining;
using tests::ToyTrainingOptions;

namespace {

using Random = std::mt19937_64;

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

// The same on every rank.
ToyTrainingOptions drawn(Random& random) {
    ToyTrainingOptions options;
    options.units = 2 + below(random, 5);
    options.lookups = 1 + below(random, 2);
    options.tied = below(random, 2) * options.lookups;
    options.forward_depth = below(random, 4);
    options.backward_depth = below(random, 4);
    options.reshard = below(random, 4) > 0;
    options.evaluation_passes = below(random, 3);
    options.reduced = below(random, 3) == 0 ? base::DType::bf16 : base::DType::f32;
    options.staged = below(random, 3) == 0;
    options.elements = 150;
    options.segments.clear();
    for (int segment = below(random, 2); segment >= 0; --segment) {
        std::vector<std::int64_t> ends;
        for (int step = 1 + below(random, 3); step > 0; --step) {
            ends.push_back((ends.empty() ? 0 : ends.back()) + 1 + below(random, 3));
        }
        options.segments.push_back(ends);
    }
    const int idle = below(random, 8);
    options.has_tokens = [idle](int rank, std::int64_t pass) { return (rank + pass) % 8 != idle; };
    return options;
}

std::string words(std::uint64_t seed, const ToyTrainingOptions& o, int shard) {
    std::ostringstream text;
    text << "seed " << seed << ": " << o.units << " units, " << o.tied << " tied, " << o.lookups
         << " lookups, depths " << o.forward_depth << " and " << o.backward_depth
         << (o.reshard ? "" : ", kept") << (o.staged ? ", staged" : "") << ", " << o.segments.size()
         << " segments, " << o.evaluation_passes << " evaluation passes, "
         << base::name_of(o.reduced) << ", groups of " << shard;
    return text.str();
}

void expect_right(std::uint64_t seed, const ToyGroups& groups, int shard) {
    Random shared(seed);
    ToyTrainingOptions options = drawn(shared);
    Random own(seed * 1000 + static_cast<std::uint64_t>(tests::rank()));
    options.copy_seed = own();
    options.most_copy_time = microseconds(below(own, 300));
    options.compute_time = [&own] { return microseconds(below(own, 2) * below(own, 300)); };
    SCOPED_TRACE(words(seed, options, shard));
    DelayedCommunicator gather(*groups.gather, own(), microseconds(below(own, 300)));
    std::optional<DelayedCommunicator> reduce, replicas;
    if (groups.reduce) {
        reduce.emplace(*groups.reduce, own(), microseconds(below(own, 500)));
    }
    if (groups.over_replicas) {
        replicas.emplace(*groups.over_replicas, own(), microseconds(below(own, 300)));
    }
    ToyTraining run({gather, reduce ? &*reduce : nullptr, replicas ? &*replicas : nullptr},
                    options);
    const ToyTraining::Wrong& wrong = run.run();
    EXPECT_EQ(wrong.weights, 0);
    EXPECT_EQ(wrong.gradients, 0);
    EXPECT_EQ(wrong.slabs, 0);
    EXPECT_EQ(run.source().issued(), run.source().freed());
    for (const auto d : {schedule::Direction::forward, schedule::Direction::backward}) {
        EXPECT_FALSE(run.source().figures(d).order_wrong) << run.source().figures(d).reason;
    }
}

} // namespace

TEST(TrainingDelaysTest, no_delay_changes_what_is_computed_or_summed) {
    std::vector<std::unique_ptr<ToyGroups>> groups; // by divisors of the ranks, of both kinds
    std::vector<int> sizes;
    for (int shard = 1; shard <= tests::ranks(); ++shard) {
        if (tests::ranks() % shard == 0) {
            for (const auto how :
                 {ToyGroups::Reductions::messages, ToyGroups::Reductions::shared}) {
                groups.push_back(std::make_unique<ToyGroups>(shard, how));
                sizes.push_back(shard);
            }
        }
    }
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const std::size_t at = seed % sizes.size();
        expect_right(seed, *groups[at], sizes[at]);
    }
}
