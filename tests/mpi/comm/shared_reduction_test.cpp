// SPDX-License-Identifier: Apache-2.0
// Reduce-scatters of ranks that read each other's memory where it lies: the same bits as over
// messages, whatever the pace, and memory that may be written again as soon as one is done.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

#include "../../support/mpi_test.hpp"
#include "../../support/summands.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using base::DType;

namespace {

class SharedReductionTest : public testing::Test {
protected:
    using Bytes = std::vector<std::byte>;

    std::unique_ptr<device::Memory> memory(comm::Communicator& c, base::Elements n) {
        return c.allocate(*device_, base::bytes_of(n, DType::f32), "gradients of a test");
    }
    static void put(const Bytes& bytes, std::byte* to) {
        if (!bytes.empty()) {
            std::memcpy(to, bytes.data(), bytes.size());
        }
    }
    static Bytes seen(base::ConstSlab slab) { return {slab.data, slab.data + slab.bytes().count}; }

    // Is what parts of n elements become the definition, and all else left alone?
    bool scatters_right(comm::Communicator& c, DType type, base::Elements n, int salt) {
        const base::Elements total = n * c.size();
        const auto memory = this->memory(c, total + 32);
        const base::Slab full(memory->data() + 64, total, type); // anywhere in it
        const Bytes before = tests::summands(type, c.rank(), 0, total, salt);
        put(before, full.data);
        Bytes shard(static_cast<std::size_t>(base::bytes_of(n, type).count));
        c.reduce_scatter(full, {shard.data(), n, type}, "reduction of a test", *stream_);
        stream_->sync();
        const Bytes expected = tests::sums(type, c.size(), c.rank() * n, n, salt);
        const bool right = shard == expected && seen(full) == before;
        const base::Slab own = full.part(c.rank() * n, n);
        c.reduce_scatter(full, own, "reduction in place", *stream_);
        stream_->sync();
        return right && seen(own) == expected;
    }

    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> stream_ = device_->stream("reduce", device::Priority::normal);
};

} // namespace

TEST_F(SharedReductionTest, sums_in_rank_order_at_all_sizes) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {});
    const base::Elements p = tests::ranks();
    constexpr base::Elements block = 16 * 1024; // what is summed at once
    for (const base::Elements n : {base::Elements{0}, base::Elements{1}, p - 1, p + 1,
                                   base::Elements{127}, block - 1, block, 2 * block + 1}) {
        for (const DType type : {DType::f32, DType::bf16}) {
            EXPECT_TRUE(scatters_right(*communicator, type, n, 1))
                << "parts of " << n << " " << base::name_of(type);
        }
    }
}

TEST_F(SharedReductionTest, works_within_each_half_of_a_split_communicator) {
    MPI_Comm half = MPI_COMM_NULL; // in reversed order: the split's ranks count, not the world's
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() % 2, -tests::rank(), &half), "split");
    {
        const auto communicator = comm::make_shared_communicator(half, {});
        EXPECT_TRUE(scatters_right(*communicator, DType::f32, 1281, 10 + tests::rank() % 2));
    }
    mesh::check(MPI_Comm_free(&half), "free a split");
}

// Two slots in turn, each written again as soon as its reduction is done, by computes of any
// length.
TEST_F(SharedReductionTest, no_delay_changes_a_bit_of_slots_that_are_written_again_and_again) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {});
    const auto compute = device_->stream("compute", device::Priority::normal);
    constexpr base::Elements n = 4001;
    const base::Elements total = n * tests::ranks();
    const auto slots = memory(*communicator, 2 * total);
    constexpr int calls = 60;
    std::vector<Bytes> shards(calls, Bytes(4 * n));
    std::mt19937_64 random(static_cast<std::uint64_t>(tests::rank()));
    std::unique_ptr<device::Event> freed[2] = {device_->event(), device_->event()};
    const auto computed = device_->event();
    for (int k = 0; k < calls; ++k) {
        const base::Slab full(slots->data() + k % 2 * 4 * total, total, DType::f32);
        const auto at = static_cast<std::size_t>(k);
        const auto delay = std::chrono::microseconds(random() % 2 * (random() % 400));
        const auto wait = std::chrono::microseconds(random() % 2 * (random() % 400));
        compute->wait(*freed[k % 2]);
        device::host_stream(*compute).enqueue(
            [=, values = tests::summands(DType::f32, tests::rank(), 0, total, k)] {
                put(values, full.data);
                std::this_thread::sleep_for(delay);
            });
        computed->record(*compute);
        stream_->wait(*computed);
        device::host_stream(*stream_).enqueue([wait] { std::this_thread::sleep_for(wait); });
        communicator->reduce_scatter(full, {shards[at].data(), n, DType::f32}, "reduction",
                                     *stream_);
        freed[k % 2]->record(*stream_);
    }
    stream_->sync();
    for (int k = 0; k < calls; ++k) {
        EXPECT_TRUE(shards[static_cast<std::size_t>(k)] ==
                    tests::sums(DType::f32, tests::ranks(), tests::rank() * n, n, k))
            << "call " << k;
    }
}

TEST_F(SharedReductionTest, gathers_and_sums_of_all_ranks_take_any_memory) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {});
    Bytes slab = tests::summands(DType::f32, tests::rank(), 0, 333, 4);
    communicator->all_reduce({slab.data(), 333, DType::f32}, "sum", *stream_);
    const float mine = static_cast<float>(tests::rank()) + 1;
    std::vector<float> all(static_cast<std::size_t>(tests::ranks()));
    communicator->all_gather(base::View<const float>(&mine, 1), base::View<float>(all), "gather",
                             *stream_);
    stream_->sync();
    EXPECT_TRUE(slab == tests::sums(DType::f32, tests::ranks(), 0, 333, 4));
    for (int r = 0; r < tests::ranks(); ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)], static_cast<float>(r + 1));
    }
}

TEST_F(SharedReductionTest, memory_that_is_not_shared_is_refused_by_the_name_of_the_reduction) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {});
    const base::Elements p = tests::ranks();
    const auto shared = memory(*communicator, 1024 * p);
    std::vector<float> other(static_cast<std::size_t>(p));
    const auto refused = [&](base::ConstSlab full, base::Elements n) {
        std::vector<float> sum(static_cast<std::size_t>(n));
        try {
            communicator->reduce_scatter(full, base::View<float>(sum), "reduction of layer.3",
                                         *stream_);
        } catch (const base::Error& error) {
            return std::string(error.what()).rfind("reduction of layer.3", 0) == 0;
        }
        return false;
    };
    EXPECT_TRUE(refused(base::View<const float>(other), 1));
    EXPECT_TRUE(refused({shared->data() + 4, 1024 * p, DType::f32}, 1024)) << "beyond its end";
    EXPECT_TRUE(refused({shared->data() - 4, p, DType::f32}, 1)) << "before its begin";
    EXPECT_EQ(communicator->gathers_enqueued(), 0);
}

TEST_F(SharedReductionTest, counts_what_was_read_of_others_and_what_was_allocated) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {});
    const int before = device_->allocations();
    const base::Elements p = tests::ranks();
    EXPECT_TRUE(scatters_right(*communicator, DType::f32, 1000, 7)); // reduces twice
    EXPECT_EQ(communicator->bytes_received().count, 2 * (p - 1) * 4 * 1000);
    EXPECT_EQ(communicator->gathers_done(), 2);
    EXPECT_EQ(communicator->gathers_enqueued(), 2);
    EXPECT_EQ(device_->allocations(), before + 1);
    EXPECT_EQ(device_->allocated().count, 4 * (1000 * p + 32));
    EXPECT_EQ(communicator->name(), "shared");
}

TEST_F(SharedReductionTest, a_slow_rank_is_waited_for) {
    const auto communicator = comm::make_shared_communicator(MPI_COMM_WORLD, {.timeout_s = 30});
    if (tests::rank() == tests::ranks() - 1) {
        std::this_thread::sleep_for(600ms);
    }
    EXPECT_TRUE(scatters_right(*communicator, DType::f32, 129, 8));
}
