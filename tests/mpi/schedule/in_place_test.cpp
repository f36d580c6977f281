// SPDX-License-Identifier: Apache-2.0
// Weights read where they lie: on one rank from its own arena, on several from a window that they
// share. Nothing is gathered, and the verdict says so.
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/shared_board.hpp>
#include <foregather/mesh/window.hpp>

#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using namespace std::chrono_literals;

namespace {

class InPlaceTest : public testing::Test {
protected:
    // This rank's part of a unit, in an arena of whole units.
    void fill_unit(const shard::ArenaPlan& plan, base::Slab arena, int rank,
                   std::size_t unit) const {
        const auto& place = plan.units[unit];
        const base::Elements first = rank * place.layout.per_rank();
        for (base::Elements e = first; e < first + place.layout.per_rank(); ++e) {
            arena.f32()[place.in_whole_arena + e] =
                tests::toy_value(model_.units[unit], static_cast<base::UnitId>(unit), e);
        }
    }
    void fill(const shard::ArenaPlan& plan, base::Slab arena, int rank) const {
        for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
            fill_unit(plan, arena, rank, unit);
        }
    }

    tests::ToyModel model_ = tests::toy_model(5, 2);
    tests::ToyOptions options_;
    tests::ToyWatch watch_;
    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> compute_ = device_->stream("compute", device::Priority::normal);
};

} // namespace

TEST_F(InPlaceTest, one_rank_reads_its_own_arena) {
    const shard::ArenaPlan plan(model_.units, 1); // parts and whole units lie alike
    const device::Buffer<float> arena(*device_, plan.whole_elements, "units");
    fill(plan, base::slab(arena.view()), 0);
    schedule::InPlaceSource source(tests::source_options(model_, options_), plan,
                                   base::slab(arena.view()), *device_, {});
    tests::run_passes(source, model_, options_, *compute_, watch_);
    EXPECT_EQ(watch_.wrong, 0);
    EXPECT_EQ(watch_.sum, tests::toy_sum(model_, plan, options_.passes));
    EXPECT_EQ(source.figures().verdict, schedule::Verdict::inert);
    EXPECT_EQ(source.figures().gathers, 0);
    EXPECT_EQ(source.issued() + source.waited() + source.freed() + source.slots(), 0);
    EXPECT_EQ(source.depth(), 0);
}

TEST_F(InPlaceTest, ranks_of_a_node_read_each_others_parts_once_they_are_posted) {
    const shard::ArenaPlan plan(model_.units, tests::ranks());
    const mesh::SharedWindow window(MPI_COMM_WORLD,
                                    base::bytes_of(plan.whole_elements, base::DType::f32));
    comm::SharedBoard board(MPI_COMM_WORLD, 5, 30);
    const base::Slab arena{window.data(), plan.whole_elements, base::DType::f32};
    std::thread loader([&] { // parts come while computes already wait for them
        for (int u = 0; u < 5; ++u) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2 + 5 * tests::rank()));
            fill_unit(plan, arena, tests::rank(), static_cast<std::size_t>(u));
            board.post(u, 1);
        }
    });
    std::vector<int> asked(5);
    schedule::InPlaceSource source(tests::source_options(model_, options_), plan, arena, *device_,
                                   [&](base::UnitId unit, device::Stream& stream) {
                                       ++asked[static_cast<std::size_t>(unit)];
                                       board.wait(unit, 1, "unit", stream);
                                   });
    tests::run_passes(source, model_, options_, *compute_, watch_);
    loader.join();
    EXPECT_EQ(watch_.wrong, 0);
    EXPECT_EQ(watch_.sum, tests::toy_sum(model_, plan, options_.passes));
    EXPECT_EQ(asked, std::vector<int>(5, 1)) << "each unit is waited for once";
    EXPECT_EQ(source.figures().verdict, schedule::Verdict::inert);
    EXPECT_TRUE(tests::agree(true)); // nobody reads any more
}

TEST_F(InPlaceTest, an_arena_that_does_not_hold_all_units_is_refused) {
    const shard::ArenaPlan plan(model_.units, 1);
    const device::Buffer<float> arena(*device_, plan.whole_elements - 1, "units");
    EXPECT_THROW(schedule::InPlaceSource(tests::source_options(model_, options_), plan,
                                         base::slab(arena.view()), *device_, {}),
                 base::Error);
}
