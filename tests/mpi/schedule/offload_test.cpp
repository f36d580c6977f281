// SPDX-License-Identifier: Apache-2.0
// Parts that lie in host memory: each comes up through one of two stages, one gather ahead, and no
// compute ever sees another bit. The device is one whose memory is apart.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/comm/host_memory.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/apart_device.hpp"
#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using std::chrono::microseconds;
using tests::ApartDevice, tests::ToyModel, tests::ToyOptions;

namespace {

// Notes at every gather where its part lay and how many copies had been enqueued.
class Observed final : public comm::Communicator {
public:
    struct Gather {
        const std::byte* part;
        std::size_t copies_before;
    };
    Observed(comm::Communicator& inner, const ApartDevice& device)
        : inner_(inner), device_(device) {}
    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::string name() const override { return inner_.name(); }
    const std::vector<Gather>& gathers() const { return gathers_; }

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        gathers_.push_back({shard.data, device_.copies().size()});
        inner_.all_gather(shard, full, std::move(what), stream);
    }

    comm::Communicator& inner_;
    const ApartDevice& device_;
    std::vector<Gather> gathers_;
};

// A Prefetcher over parts in host memory. Without stages the communicator copies them itself.
class OffloadRun {
public:
    OffloadRun(comm::Communicator& communicator, ToyModel model, const ToyOptions& options,
               ApartDevice& device, bool staged = true)
        : model_(std::move(model)), options_(options), device_(device),
          observed_(communicator, device), plan_(model_.units, communicator.size()),
          shards_(device, plan_.shard_elements, "parts"),
          stages_(device, staged ? 2 * plan_.largest_part : 0, "stages"),
          slots_(device,
                 schedule::Schedule(model_.uses, 1, options.depth).slots() * plan_.largest_unit,
                 "slots"),
          compute_(device.stream("compute", device::Priority::normal)),
          copy_(device.stream("copy", device::Priority::high)),
          gather_(device.stream("gather", device::Priority::high)) {
        for (std::size_t u = 0; u < model_.units.size(); ++u) {
            const auto id = static_cast<base::UnitId>(u);
            const auto n = plan_.units[u].layout.per_rank();
            auto* part = shards_.view().data() + plan_.units[u].in_shard_arena;
            for (base::Elements e = 0; e < n; ++e) {
                part[e] = tests::toy_value(model_.units[u], id, communicator.rank() * n + e);
            }
        }
        schedule::StagedParts::Stages stages;
        if (staged) {
            stages = {base::slab(stages_.view()), copy_.get()};
        }
        prefetcher_ = std::make_unique<schedule::Prefetcher>(
            tests::source_options(model_, options_), model_.units, plan_,
            schedule::Prefetcher::GatherMemory{[this](base::UnitId unit) { return part_of(unit); },
                                               base::slab(slots_.view()), stages},
            observed_, device_, *gather_);
    }

    const tests::ToyWatch& run() {
        tests::run_passes(*prefetcher_, model_, options_, *compute_, watch_,
                          [this] { device_.mark_time(*compute_); });
        gather_->sync();
        copy_->sync();
        return watch_;
    }
    bool right() const {
        return watch_.wrong == 0 && watch_.sum == tests::toy_sum(model_, plan_, options_.passes);
    }
    schedule::Prefetcher& prefetcher() { return *prefetcher_; }
    const std::vector<Observed::Gather>& gathers() const { return observed_.gathers(); }
    const std::byte* stage(std::size_t number) const {
        return reinterpret_cast<const std::byte*>(
            stages_.view().data() + static_cast<std::ptrdiff_t>(number % 2) * plan_.largest_part);
    }

private:
    base::ConstSlab part_of(base::UnitId unit) const {
        const auto& place = plan_.units[static_cast<std::size_t>(unit)];
        return base::slab(base::View<const float>(
            shards_.view().subspan(static_cast<std::size_t>(place.in_shard_arena),
                                   static_cast<std::size_t>(place.layout.per_rank()))));
    }

    ToyModel model_;
    ToyOptions options_;
    ApartDevice& device_;
    Observed observed_;
    shard::ArenaPlan plan_;
    device::HostBuffer<float> shards_;
    device::Buffer<float> stages_, slots_;
    tests::ToyWatch watch_;
    std::unique_ptr<device::Stream> compute_, copy_, gather_;
    std::unique_ptr<schedule::Prefetcher> prefetcher_;
};

ToyOptions at_depth(int depth) {
    ToyOptions options;
    options.depth = depth;
    options.passes = 4;
    return options;
}

std::vector<schedule::Span> spans_of(const schedule::Prefetcher& source, schedule::SpanKind kind) {
    std::vector<schedule::Span> spans = source.spans();
    std::erase_if(spans, [&](const schedule::Span& span) { return span.kind != kind; });
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return spans;
}

class OffloadTest : public testing::TestWithParam<int> {
protected:
    std::unique_ptr<comm::Communicator> communicator_ =
        comm::make_mpi_communicator(MPI_COMM_WORLD, {});
};

} // namespace

TEST_P(OffloadTest, each_part_is_copied_one_gather_ahead_through_exactly_two_stages) {
    for (const int tied : {0, 3}) {
        ApartDevice device;
        OffloadRun run(*communicator_, tests::toy_model(6, tied), at_depth(GetParam()), device);
        const int allocations = device.allocations();
        run.run();
        EXPECT_TRUE(run.right());
        EXPECT_EQ(device.allocations(), allocations);
        const auto& copies = device.copies();
        ASSERT_EQ(copies.size(), run.gathers().size());
        std::int64_t bytes = 0;
        for (std::size_t g = 0; g < copies.size(); ++g) {
            EXPECT_EQ(run.gathers()[g].copies_before, std::min(g + 2, copies.size())) << g;
            EXPECT_EQ(run.gathers()[g].part, run.stage(g)) << g;
            EXPECT_EQ(copies[g].to, run.stage(g)) << g;
            EXPECT_EQ(copies[g].stream, "copy");
            bytes += copies[g].bytes;
        }
        EXPECT_EQ(run.prefetcher().own_bytes(), base::Bytes{bytes});
        EXPECT_EQ(run.prefetcher().freed(), std::ssize(copies));
    }
}

TEST_P(OffloadTest,
       copies_are_spans_that_end_before_their_gather_and_begin_after_the_stage_is_free) {
    ApartDevice device(7, microseconds(300));
    OffloadRun run(*communicator_, tests::toy_model(5, 2), at_depth(GetParam()), device);
    run.run();
    const auto gathers = spans_of(run.prefetcher(), schedule::SpanKind::gather);
    const auto copies = spans_of(run.prefetcher(), schedule::SpanKind::copy);
    ASSERT_EQ(copies.size(), gathers.size());
    for (std::size_t g = 0; g < copies.size(); ++g) {
        EXPECT_EQ(copies[g].unit, gathers[g].unit);
        EXPECT_EQ(copies[g].slot, static_cast<int>(g % 2));
        EXPECT_LE(copies[g].issued_ns, copies[g].begin_ns);
        EXPECT_LE(copies[g].end_ns, gathers[g].begin_ns) << g;
        if (g >= 2) {
            EXPECT_GE(copies[g].begin_ns, gathers[g - 2].end_ns) << g;
        }
        EXPECT_EQ(copies[g].received.count, device.copies()[g].bytes);
    }
    const schedule::PrefetchFigures figures = run.prefetcher().figures();
    EXPECT_EQ(figures.issued_ahead, GetParam());
    EXPECT_EQ(figures.gathers, std::ssize(gathers)) << "figures are of gathers, not of copies";
}

TEST(OffloadDelaysTest, no_delay_of_copies_gathers_or_computes_changes_a_bit) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::mt19937_64 shared(seed); // draws that all ranks make alike
        const int units = 2 + static_cast<int>(shared() % 5);
        const int tied = static_cast<int>(shared() % static_cast<unsigned>(units + 1));
        ToyOptions options = at_depth(static_cast<int>(shared() % 3));
        std::mt19937_64 own(seed * 1000 + static_cast<std::uint64_t>(communicator->rank()));
        options.compute_time = [&own](std::int64_t) {
            return microseconds(own() % 2 == 0 ? 0 : own() % 300);
        };
        tests::DelayedCommunicator delayed(*communicator, own(), microseconds(own() % 300));
        ApartDevice device(own(), microseconds(own() % 300));
        OffloadRun run(delayed, tests::toy_model(units, tied, 200), options, device);
        run.run();
        EXPECT_TRUE(run.right()) << "seed " << seed;
    }
}

// All units but one have a slot: gathers are rare, and their copies far ahead of them.
TEST(OffloadDelaysTest, copies_far_ahead_of_their_gathers_are_timed_while_the_clock_knows_them) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    ApartDevice device;
    ToyOptions options = at_depth(8);
    options.passes = 9;
    OffloadRun run(*communicator, tests::toy_model(10, 0, 100), options, device);
    run.run();
    EXPECT_TRUE(run.right());
    EXPECT_EQ(spans_of(run.prefetcher(), schedule::SpanKind::copy).size(), device.copies().size());
}

// One rank gathers nothing: its weights go straight into slots, on the gather stream.
TEST_P(OffloadTest, one_rank_copies_into_slots_and_that_is_what_the_prefetch_counts) {
    ApartDevice device(3, microseconds(100));
    const auto copies = comm::make_host_memory_copies(device);
    OffloadRun run(*copies, tests::toy_model(6, 2), at_depth(GetParam()), device, false);
    const int allocations = device.allocations();
    run.run();
    EXPECT_TRUE(run.right());
    EXPECT_EQ(device.allocations(), allocations);
    EXPECT_EQ(device.copies().size(), run.gathers().size());
    EXPECT_EQ(device.copies().front().stream, "gather");
    const schedule::PrefetchFigures figures = run.prefetcher().figures();
    EXPECT_EQ(figures.issued_ahead, GetParam());
    EXPECT_EQ(figures.gathers, std::ssize(run.gathers()));
    EXPECT_NE(figures.verdict, schedule::Verdict::inert);
    EXPECT_EQ(figures.received.count, 0) << "nothing came from another rank";
    EXPECT_GT(figures.longest_gather_s, 0);
    EXPECT_GT(run.prefetcher().own_bytes().count, 0);
    EXPECT_TRUE(spans_of(run.prefetcher(), schedule::SpanKind::copy).empty());
}

INSTANTIATE_TEST_SUITE_P(Depths, OffloadTest, testing::Values(0, 1, 2));
