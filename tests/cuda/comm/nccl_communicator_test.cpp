// SPDX-License-Identifier: Apache-2.0
// The gather by NCCL, on its double, against its definition: sizes, groups, the emulated link, what
// it counts and what memory it gives. How it fails is tested with the whole program.
#include <numeric>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/nccl_communicator.hpp>
#include <foregather/device/cuda_device.hpp>

#include "../../cuda_emulation/doubles_test.hpp"
#include "mpi_test.hpp"

namespace foregather::comm {
namespace {

class NcclCommunicatorTest : public testing::Test {
protected:
    // Elements of a gather of parts of n that differ from the definition.
    int wrong(Communicator& communicator, base::Elements n) {
        const int size = communicator.size();
        const device::HostBuffer<float> in(*device_, n, "input"), out(*device_, n * size, "output");
        const device::Buffer<float> shard(*device_, n, "shard"), full(*device_, n * size, "full");
        std::iota(in.view().begin(), in.view().end(),
                  1000.0F * static_cast<float>(communicator.rank()));
        device_->copy_in(base::View<const float>(in.view()), shard.view(), *gather_);
        communicator.all_gather(base::slab(shard.view()), base::slab(full.view()),
                                "gather of a test", *gather_);
        device_->copy_out(base::View<const float>(full.view()), out.view(), *gather_);
        gather_->sync();
        int differ = 0;
        for (base::Elements i = 0; i < n * size; ++i) {
            const auto expected = 1000.0F * static_cast<float>(i / n) + static_cast<float>(i % n);
            differ += out.view()[static_cast<std::size_t>(i)] != expected ? 1 : 0;
        }
        return differ;
    }

    emulation::Emulation emulation_{{{"FOREGATHER_EMULATION_GPUS", "4"}}}; // outlives what is on it
    std::unique_ptr<device::Device> device_ = device::make_cuda_device(tests::rank());
    std::unique_ptr<device::Stream> gather_ = device_->stream("gather", device::Priority::high);
};

TEST_F(NcclCommunicatorTest, GathersPartsInRankOrderAndCountsWhatCame) {
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {});
    EXPECT_EQ(communicator->rank(), tests::rank());
    EXPECT_EQ(communicator->size(), tests::ranks());
    EXPECT_EQ(communicator->name(), "nccl " + nccl_version());
    EXPECT_FALSE(communicator->shares_node());
    std::int64_t received = 0;
    int gathers = 0;
    for (const base::Elements n : {1, 127, 4096}) {
        EXPECT_EQ(wrong(*communicator, n), 0) << n;
        received += (tests::ranks() - 1) * n * 4;
        EXPECT_EQ(communicator->gathers_done(), ++gathers) << "seen to end by whoever waits";
    }
    EXPECT_EQ(communicator->bytes_received().count, received);
    EXPECT_GT(communicator->busy_s(), 0);
}

TEST_F(NcclCommunicatorTest, GathersInGroups) {
    MPI_Comm half = MPI_COMM_NULL;
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() % 2, tests::rank(), &half), "split");
    {
        const auto communicator = make_nccl_communicator(half, *device_, {});
        EXPECT_EQ(wrong(*communicator, 300), 0);
    }
    mesh::check(MPI_Comm_free(&half), "free");
}

TEST_F(NcclCommunicatorTest, OneGoesWhileAnotherGathers) {
    const auto stays = make_nccl_communicator(MPI_COMM_WORLD, *device_, {});
    make_nccl_communicator(MPI_COMM_WORLD, *device_, {"other", 120, 0}).reset();
    EXPECT_EQ(wrong(*stays, 64), 0) << "whoever waits does not look at what has gone";
}

TEST_F(NcclCommunicatorTest, AnEmulatedLinkTakesItsTime) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {"slow", 120, 1e6});
    const std::int64_t begin = device_->now_ns();
    EXPECT_EQ(wrong(*communicator, 5000), 0);
    const double least = (tests::ranks() - 1) * 5000 * 4 / 1e6;
    EXPECT_GE(static_cast<double>(device_->now_ns() - begin) * 1e-9, least);
    EXPECT_GE(communicator->longest_gather_s(), 0.99 * least);
}

TEST_F(NcclCommunicatorTest, ItsMemoryIsTheDevicesAndCounted) {
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {});
    const int before = device_->allocations();
    const auto memory = communicator->allocate(*device_, {8192}, "an arena");
    EXPECT_EQ(memory->size().count, 8192);
    EXPECT_EQ(device_->allocations(), before + 1);
    EXPECT_THROW(communicator->allocate(*device_, {std::int64_t{1} << 50}, "too much"),
                 base::Error);
    EXPECT_TRUE(tests::agree(true));
}

} // namespace
} // namespace foregather::comm
