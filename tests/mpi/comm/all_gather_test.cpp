// SPDX-License-Identifier: Apache-2.0
// The gather over MPI against its definition, in stream order, beside computes that run; what it
// refuses, counts and paces. What it is used for is in tests/mpi/schedule.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;
using namespace std::chrono_literals;

namespace {

using Seconds = std::chrono::duration<double>;

class AllGatherTest : public testing::Test {
protected:
    static float element(int rank, base::Elements i, int salt) {
        return static_cast<float>((rank * 7919 + static_cast<int>(i) * 31 + salt) % 100'003);
    }

    // Gathers parts of n elements on `communicator` and counts elements that differ from the
    // definition.
    std::int64_t wrong_elements(comm::Communicator& communicator, base::Elements n, int salt) {
        const device::Buffer<float> shard(*device_, n, "shard");
        const device::Buffer<float> full(*device_, n * communicator.size(), "full");
        for (base::Elements i = 0; i < n; ++i) {
            shard.view()[static_cast<std::size_t>(i)] = element(communicator.rank(), i, salt);
        }
        std::fill(full.view().begin(), full.view().end(), -1.0F);
        communicator.all_gather(base::slab(shard.view()), base::slab(full.view()),
                                "gather of a test", *gather_);
        gather_->sync();
        std::int64_t wrong = 0;
        for (int r = 0; r < communicator.size(); ++r) {
            for (base::Elements i = 0; i < n; ++i) {
                wrong +=
                    full.view()[static_cast<std::size_t>(r * n + i)] != element(r, i, salt) ? 1 : 0;
            }
        }
        return wrong;
    }

    // Seconds that a gather of parts of n elements takes.
    Seconds time_of(comm::Communicator& communicator, base::Elements n) {
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(wrong_elements(communicator, n, 0), 0);
        return std::chrono::steady_clock::now() - begin;
    }

    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> gather_ = device_->stream("gather", device::Priority::high);
};

} // namespace

TEST_F(AllGatherTest, brings_every_part_to_every_rank_at_all_sizes) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    EXPECT_EQ(communicator->rank(), tests::rank());
    EXPECT_EQ(communicator->size(), tests::ranks());
    EXPECT_EQ(communicator->name(), "mpi");
    for (const base::Elements n : {0, 128, 256, 1280, 128 * 31, 128 * 1001}) {
        EXPECT_EQ(wrong_elements(*communicator, n, 1), 0) << "parts of " << n;
    }
}

TEST_F(AllGatherTest, works_within_each_half_of_a_split_communicator) {
    MPI_Comm half = MPI_COMM_NULL; // in reversed order: the split's ranks count, not the world's
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() % 2, -tests::rank(), &half), "split");
    {
        const auto communicator = comm::make_mpi_communicator(half, {});
        EXPECT_EQ(communicator->size(), (tests::ranks() + 1 - tests::rank() % 2) / 2);
        EXPECT_EQ(wrong_elements(*communicator, 1280, 10 + tests::rank() % 2), 0);
    }
    mesh::check(MPI_Comm_free(&half), "free a split");
}

TEST_F(AllGatherTest, two_communicators_gather_at_the_same_time) {
    const auto one = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto other = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto second = device_->stream("second", device::Priority::high);
    const device::Buffer<float> shard(*device_, 1280, "shard");
    const device::Buffer<float> a(*device_, 1280 * tests::ranks(), "full");
    const device::Buffer<float> b(*device_, 1280 * tests::ranks(), "full");
    std::fill(shard.view().begin(), shard.view().end(), static_cast<float>(tests::rank()));
    for (int i = 0; i < 20; ++i) {
        one->all_gather(base::slab(shard.view()), base::slab(a.view()), "one", *gather_);
        other->all_gather(base::slab(shard.view()), base::slab(b.view()), "other", *second);
    }
    gather_->sync();
    second->sync();
    EXPECT_EQ(a.view().back(), static_cast<float>(tests::ranks() - 1));
    EXPECT_EQ(b.view().back(), static_cast<float>(tests::ranks() - 1));
}

TEST_F(AllGatherTest, runs_beside_a_compute_stream_that_is_busy) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto compute = device_->stream("compute", device::Priority::normal);
    std::atomic<bool> stop = false;
    device::host_stream(*compute).enqueue([&] {
        while (!stop) {
            std::this_thread::sleep_for(100us);
        }
    });
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(wrong_elements(*communicator, 1280, i), 0);
    }
    EXPECT_FALSE(stop) << "the gathers ended although compute had not";
    stop = true;
    compute->sync();
}

TEST_F(AllGatherTest, does_not_begin_before_what_its_stream_waits_for) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const auto compute = device_->stream("compute", device::Priority::normal);
    const device::Buffer<float> shard(*device_, 128, "shard");
    const device::Buffer<float> full(*device_, 128 * tests::ranks(), "full");
    std::fill(shard.view().begin(), shard.view().end(), 0.0F);
    const auto written = device_->event();
    device::host_stream(*compute).enqueue([&] {
        std::this_thread::sleep_for(20ms);
        std::fill(shard.view().begin(), shard.view().end(),
                  1.0F + static_cast<float>(tests::rank()));
    });
    written->record(*compute);
    gather_->wait(*written);
    communicator->all_gather(base::slab(shard.view()), base::slab(full.view()), "gather", *gather_);
    gather_->sync();
    for (int r = 0; r < tests::ranks(); ++r) {
        EXPECT_EQ(full.view()[static_cast<std::size_t>(r * 128 + 127)],
                  1.0F + static_cast<float>(r));
    }
}

TEST_F(AllGatherTest, refuses_parts_that_do_not_make_the_whole) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    const device::Buffer<float> shard(*device_, 256, "shard");
    const device::Buffer<float> full(*device_, 256 * tests::ranks() + 128, "full");
    const auto refused = [&](base::ConstSlab part, base::Slab whole) {
        try {
            communicator->all_gather(part, whole, "gather of layer.3", *gather_);
        } catch (const base::Error& error) {
            return std::string(error.what()).rfind("gather of layer.3", 0) == 0; // names itself
        }
        return false;
    };
    const base::Elements whole = 256 * tests::ranks();
    const base::Slab part = base::slab(shard.view());
    EXPECT_TRUE(refused(part, base::slab(full.view()))) << "too large";
    EXPECT_TRUE(refused(part, base::slab(full.first(whole - 128)))) << "too small";
    EXPECT_TRUE(refused(part, {base::slab(full.view()).data, whole, base::DType::bf16}))
        << "other type";
    EXPECT_FALSE(refused(part, base::slab(full.first(whole))));
    gather_->sync();
    EXPECT_EQ(communicator->gathers_enqueued(), 1) << "what was refused was not enqueued";
}

TEST_F(AllGatherTest, parts_of_any_size_arrive_whole_in_however_many_messages) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    constexpr base::Elements message = 60 * 1024 / 4; // and 64 of them may be under way
    for (const base::Elements n :
         {base::Elements{1}, message - 1, message, message + 1, 64 * message, 65 * message + 7}) {
        EXPECT_EQ(wrong_elements(*communicator, n, 2), 0) << "parts of " << n;
    }
}

TEST_F(AllGatherTest, gathers_that_follow_each_other_do_not_mix) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    constexpr base::Elements n = 40'000; // several messages
    const device::Buffer<float> shard(*device_, 8 * n, "shards");
    const device::Buffer<float> full(*device_, 8 * n * tests::ranks(), "fulls");
    for (int k = 0; k < 8; ++k) {
        const base::Slab part = base::slab(shard.view()).part(k * n, n);
        std::fill_n(reinterpret_cast<float*>(part.data), n, element(tests::rank(), k, 0));
        if (k == 4 && tests::rank() == 0) {
            std::this_thread::sleep_for(20ms); // others are ahead, or wait
        }
        communicator->all_gather(
            part, base::slab(full.view()).part(k * n * tests::ranks(), n * tests::ranks()),
            "gather", *gather_);
    }
    gather_->sync();
    std::int64_t wrong = 0;
    for (int k = 0; k < 8; ++k) {
        for (int r = 0; r < tests::ranks(); ++r) {
            for (base::Elements i = 0; i < n; ++i) {
                const auto at = static_cast<std::size_t>((k * tests::ranks() + r) * n + i);
                wrong += full.view()[at] != element(r, k, 0) ? 1 : 0;
            }
        }
    }
    EXPECT_EQ(wrong, 0);
}

TEST_F(AllGatherTest, counts_gathers_bytes_of_other_ranks_and_time) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    EXPECT_EQ(wrong_elements(*communicator, 1280, 0), 0);
    EXPECT_EQ(wrong_elements(*communicator, 128, 0), 0);
    EXPECT_EQ(communicator->gathers_enqueued(), 2);
    EXPECT_EQ(communicator->gathers_done(), 2);
    EXPECT_EQ(communicator->bytes_received(), base::Bytes{(tests::ranks() - 1) * 4 * (1280 + 128)});
    EXPECT_GT(communicator->longest_gather_s(), 0);
    EXPECT_GE(communicator->busy_s(), communicator->longest_gather_s());
}

TEST_F(AllGatherTest, a_link_rate_makes_it_take_as_long_as_the_bytes_would) {
    constexpr base::Elements n = 12'800; // 51'200 bytes from every other rank
    constexpr double rate = 1'000'000;
    const auto paced = comm::make_mpi_communicator(MPI_COMM_WORLD, {.bytes_per_second = rate});
    const double expected = 4.0 * n * (tests::ranks() - 1) / rate; // 0 with one rank
    EXPECT_GE(time_of(*paced, n).count(), expected);
    EXPECT_GE(paced->longest_gather_s(), expected);
    EXPECT_LT(paced->longest_gather_s(), expected + 2) << "and not much longer";
}

TEST_F(AllGatherTest, a_slow_rank_is_waited_for) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {.timeout_s = 30});
    if (tests::rank() == tests::ranks() - 1) {
        std::this_thread::sleep_for(
            700ms); // longer than the half second after which ranks ask around
    }
    EXPECT_EQ(wrong_elements(*communicator, 128, 3), 0);
}
