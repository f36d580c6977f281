// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-reduce over MPI against their definitions, bit for bit: sums in rank
// order, of fp32 and of bf16, on any ranks and at any pace. What they are used for is elsewhere.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/host_memory.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/summands.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using base::DType;

namespace {

class ReductionTest : public testing::Test {
protected:
    // Is what parts of n elements become the definition, bit for bit, and all else left alone?
    bool scatters_right(comm::Communicator& c, DType type, base::Elements n, int salt) {
        const base::Elements total = n * c.size();
        const auto before = tests::summands(type, c.rank(), 0, total, salt);
        auto full = before;
        std::vector<std::byte> shard(static_cast<std::size_t>(base::bytes_of(n, type).count));
        c.reduce_scatter({full.data(), total, type}, {shard.data(), n, type}, "reduction of a test",
                         *stream_);
        stream_->sync();
        return full == before && shard == tests::sums(type, c.size(), c.rank() * n, n, salt);
    }
    bool scatters_right_in_place(comm::Communicator& c, DType type, base::Elements n, int salt) {
        const base::Elements total = n * c.size();
        auto full = tests::summands(type, c.rank(), 0, total, salt);
        const base::Slab own = base::Slab(full.data(), total, type).part(c.rank() * n, n);
        c.reduce_scatter({full.data(), total, type}, own, "reduction of a test", *stream_);
        stream_->sync();
        return tests::sums(type, c.size(), c.rank() * n, n, salt) ==
               std::vector<std::byte>(own.data, own.data + own.bytes().count);
    }
    bool reduces_right(comm::Communicator& c, DType type, base::Elements n, int salt) {
        auto slab = tests::summands(type, c.rank(), 0, n, salt);
        c.all_reduce({slab.data(), n, type}, "reduction of a test", *stream_);
        stream_->sync();
        return slab == tests::sums(type, c.size(), 0, n, salt);
    }
    void expect_right(comm::Communicator& c, base::Elements n, int salt) {
        for (const DType type : {DType::f32, DType::bf16}) {
            const std::string what = std::to_string(n) + " " + base::name_of(type);
            EXPECT_TRUE(scatters_right(c, type, n, salt)) << "parts of " << what;
            EXPECT_TRUE(scatters_right_in_place(c, type, n, salt)) << "parts of " << what;
            EXPECT_TRUE(reduces_right(c, type, n, salt)) << what;
        }
    }

    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> stream_ = device_->stream("reduce", device::Priority::normal);
};

} // namespace

TEST_F(ReductionTest, sums_in_rank_order_at_all_sizes) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const base::Elements p = tests::ranks();
    constexpr base::Elements message = 60 * 1024 / 4; // of fp32; 64 may be under way
    for (const base::Elements n : {base::Elements{0}, base::Elements{1}, p - 1, p, p + 1,
                                   base::Elements{127}, message - 1, message, 2 * message + 1}) {
        expect_right(*communicator, n, 1);
    }
}

TEST_F(ReductionTest, more_messages_than_are_under_way_at_once_are_summed_right) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const int others =
        std::max(1, tests::ranks() - 1); // a message from each at a time, in 64 places
    const base::Elements n = (64 / others + 2) * (60 * 1024 / 4) + 7;
    EXPECT_TRUE(scatters_right(*communicator, DType::f32, n, 2));
    EXPECT_TRUE(reduces_right(*communicator, DType::bf16, n, 2));
}

TEST_F(ReductionTest, works_within_each_half_of_a_split_communicator) {
    MPI_Comm half = MPI_COMM_NULL; // in reversed order: the split's ranks count, not the world's
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() % 2, -tests::rank(), &half), "split");
    {
        const auto communicator = comm::make_mpi_communicator(half, {});
        expect_right(*communicator, 1281, 10 + tests::rank() % 2);
    }
    mesh::check(MPI_Comm_free(&half), "free a split");
}

TEST_F(ReductionTest, ranks_that_share_nodes_sum_as_others_do) {
    MPI_Comm split = MPI_COMM_NULL; // pretended nodes of two
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() / 2, tests::rank(), &split), "split");
    const mesh::Comm node(split);
    const auto communicator = comm::make_node_communicator(MPI_COMM_WORLD, node.handle(), {});
    for (const base::Elements n : {1, 3, 20'001}) {
        expect_right(*communicator, n, 4);
    }
}

TEST_F(ReductionTest, delays_change_no_bit) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    constexpr base::Elements n = 40'001; // several messages
    constexpr int calls = 6;
    const base::Elements total = n * tests::ranks();
    const auto expected = tests::sums(DType::f32, tests::ranks(), tests::rank() * n, n, 5);
    const auto expected_all = tests::sums(DType::f32, tests::ranks(), 0, n, 6);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        tests::DelayedCommunicator delayed(
            *communicator, seed * 1000 + static_cast<std::uint64_t>(tests::rank()), 2ms);
        auto full = tests::summands(DType::f32, tests::rank(), 0, total, 5);
        std::vector<std::vector<std::byte>> shards(calls, std::vector<std::byte>(4 * n));
        std::vector<std::vector<std::byte>> all(
            calls, tests::summands(DType::f32, tests::rank(), 0, n, 6));
        for (std::size_t k = 0; k < calls; ++k) { // all are on their way before the first ends
            delayed.reduce_scatter({full.data(), total, DType::f32},
                                   {shards[k].data(), n, DType::f32}, "reduction", *stream_);
            delayed.all_reduce({all[k].data(), n, DType::f32}, "replica", *stream_);
        }
        stream_->sync();
        for (std::size_t k = 0; k < calls; ++k) {
            EXPECT_TRUE(shards[k] == expected) << "seed " << seed << ", call " << k;
            EXPECT_TRUE(all[k] == expected_all) << "seed " << seed << ", call " << k;
        }
    }
}

TEST_F(ReductionTest, run_beside_gathers_of_another_communicator) {
    const auto gathers = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto reductions = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto gather = device_->stream("gather", device::Priority::high);
    constexpr base::Elements n = 20'000;
    const device::Buffer<float> shard(*device_, n, "shard");
    const device::Buffer<float> full(*device_, n * tests::ranks(), "full");
    std::fill(shard.view().begin(), shard.view().end(), static_cast<float>(tests::rank()));
    for (int i = 0; i < 5; ++i) {
        gathers->all_gather(shard.view(), full.view(), "gather", *gather);
        EXPECT_TRUE(scatters_right(*reductions, DType::f32, n, i));
    }
    gather->sync();
    EXPECT_EQ(full.view().back(), static_cast<float>(tests::ranks() - 1));
}

TEST_F(ReductionTest, one_rank_keeps_its_bits) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_SELF, {});
    float full[] = {-0.0F, 1e-45F, 3.5F};
    float shard[] = {1, 1, 1};
    communicator->reduce_scatter(base::View<float>(full), base::View<float>(shard), "own",
                                 *stream_);
    communicator->all_reduce(base::View<float>(full), "own", *stream_);
    stream_->sync();
    EXPECT_EQ(std::memcmp(full, shard, sizeof full), 0);
    EXPECT_TRUE(std::signbit(full[0]));
    EXPECT_EQ(communicator->bytes_received().count, 0);
}

TEST_F(ReductionTest, refuses_sizes_and_types_that_do_not_fit) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    std::vector<std::byte> memory(static_cast<std::size_t>(8 * (tests::ranks() + 1)));
    std::byte* data = memory.data();
    const auto refused = [](const auto& call) {
        try {
            call();
        } catch (const base::Error& error) {
            return std::string(error.what()).rfind("reduction of layer.3", 0) == 0;
        }
        return false;
    };
    const auto scatter = [&](base::ConstSlab full, base::Slab shard) {
        return refused([&, full, shard] {
            communicator->reduce_scatter(full, shard, "reduction of layer.3", *stream_);
        });
    };
    const base::Elements p = tests::ranks();
    EXPECT_TRUE(scatter({data, p + 1, DType::f32}, {data, 1, DType::f32}));
    EXPECT_TRUE(scatter({data, p, DType::bf16}, {data, 1, DType::f32}));
    EXPECT_TRUE(scatter({data, p, DType::f16}, {data, 1, DType::f16}));
    EXPECT_TRUE(refused([&] {
        communicator->all_reduce({data, p, DType::f16}, "reduction of layer.3", *stream_);
    }));
    const auto copies = comm::make_host_memory_copies(*device_);
    EXPECT_TRUE(refused([&] {
        copies->all_reduce({data, 1, DType::f32}, "reduction of layer.3", *stream_);
    })) << "it only gathers";
    EXPECT_EQ(communicator->gathers_enqueued() + copies->gathers_enqueued(), 0);
}

TEST_F(ReductionTest, counts_what_came_and_keeps_to_the_link) {
    constexpr double rate = 2'000'000;
    const auto paced = comm::make_mpi_communicator(MPI_COMM_WORLD, {.bytes_per_second = rate});
    const base::Elements p = tests::ranks();
    constexpr base::Elements n = 12'000; // 48'000 bytes from every other rank
    EXPECT_TRUE(scatters_right(*paced, DType::f32, n, 7));
    EXPECT_EQ(paced->bytes_received().count, (p - 1) * 4 * n);
    EXPECT_GE(paced->longest_gather_s(), static_cast<double>((p - 1) * 4 * n) / rate);
    EXPECT_TRUE(reduces_right(*paced, DType::f32, n, 7)); // n is a multiple of 1 .. 4
    EXPECT_EQ(paced->bytes_received().count, (p - 1) * 4 * n + 2 * (p - 1) * 4 * n / p);
    EXPECT_EQ(paced->gathers_done(), 2);
    EXPECT_EQ(paced->gathers_enqueued(), 2);
    EXPECT_GE(paced->busy_s(), static_cast<double>(paced->bytes_received().count) / rate);
}

TEST_F(ReductionTest, a_slow_rank_is_waited_for) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {.timeout_s = 30});
    if (tests::rank() == tests::ranks() - 1) {
        std::this_thread::sleep_for(600ms); // longer than ranks wait before they ask around
    }
    EXPECT_TRUE(reduces_right(*communicator, DType::f32, 129, 8));
}
