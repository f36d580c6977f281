// SPDX-License-Identifier: Apache-2.0
// Reductions by NCCL, on its double, against their definitions: sizes, types, groups, roles side by
// side, the emulated link. The double adds in rank order, once rounded; NCCL itself may not.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/nccl_communicator.hpp>
#include <foregather/device/cuda_device.hpp>
#include <foregather/io/convert.hpp>

#include "../../cuda_emulation/doubles_test.hpp"
#include "mpi_test.hpp"

namespace foregather::comm {
namespace {

using base::DType;

class NcclReductionTest : public testing::Test {
protected:
    static float element(int rank, base::Elements i) {
        const auto mixed = static_cast<std::uint32_t>((rank + 1) * 7919 + i * 31);
        const auto value = static_cast<float>(mixed * 2654435761U % 1'000'003U) - 500'000.0F;
        return value * (mixed % 3 == 0 ? 1e-6F : mixed % 3 == 1 ? 1.0F : 3e4F);
    }
    // Values of fp32, rounded to those of the type.
    static void round_to(DType type, float& value) {
        if (type == DType::bf16) {
            std::uint16_t bits = 0;
            io::f32_to_bf16(&value, 1, &bits);
            io::to_f32(type, reinterpret_cast<const std::byte*>(&bits), 1, &value);
        }
    }
    static std::vector<float> terms(DType type, int rank, base::Elements n) {
        std::vector<float> values;
        for (base::Elements i = 0; i < n; ++i) {
            values.push_back(element(rank, i));
            round_to(type, values.back());
        }
        return values;
    }
    static std::vector<float> sums(DType type, int ranks, base::Elements first, base::Elements n) {
        std::vector<float> result;
        for (base::Elements i = first; i < first + n; ++i) {
            float sum = 0;
            for (int r = 0; r < ranks; ++r) {
                float term = element(r, i);
                round_to(type, term);
                sum = r == 0 ? term : sum + term;
            }
            round_to(type, sum);
            result.push_back(sum);
        }
        return result;
    }

    // Values to `slab` and back, by the stream.
    void bring(const std::vector<float>& values, base::Slab slab, device::Stream& stream) {
        const auto bytes = static_cast<std::size_t>(slab.bytes().count);
        in_ = device::HostBuffer<std::byte>(*device_, slab.bytes().count, "input");
        if (slab.type == DType::bf16) {
            io::f32_to_bf16(values.data(), slab.n,
                            reinterpret_cast<std::uint16_t*>(in_.view().data()));
        } else {
            std::memcpy(in_.view().data(), values.data(), bytes);
        }
        device_->copy_in(base::View<const std::byte>(in_.view()),
                         base::View<std::byte>(slab.data, bytes), stream);
    }
    std::vector<float> fetch(base::ConstSlab slab, device::Stream& stream) {
        const device::HostBuffer<std::byte> out(*device_, slab.bytes().count, "output");
        device_->copy_out(
            base::View<const std::byte>(slab.data, static_cast<std::size_t>(slab.bytes().count)),
            out.view(), stream);
        stream.sync();
        std::vector<float> values(static_cast<std::size_t>(slab.n));
        io::to_f32(slab.type, out.view().data(), slab.n, values.data());
        return values;
    }

    bool scatters_right(Communicator& c, DType type, base::Elements n) {
        const base::Elements total = n * c.size();
        const device::Buffer<float> full(*device_, total, "full"), shard(*device_, n, "shard");
        const base::Slab whole(base::Slab(full.view()).data, total, type);
        const base::Slab part(base::Slab(shard.view()).data, n, type);
        bring(terms(type, c.rank(), total), whole, *reduce_);
        c.reduce_scatter(whole, part, "reduction of a test", *reduce_);
        return fetch(part, *reduce_) == sums(type, c.size(), c.rank() * n, n);
    }
    bool reduces_right(Communicator& c, DType type, base::Elements n) {
        const device::Buffer<float> buffer(*device_, n, "slab");
        const base::Slab slab(base::Slab(buffer.view()).data, n, type);
        bring(terms(type, c.rank(), n), slab, *reduce_);
        c.all_reduce(slab, "reduction of a test", *reduce_);
        return fetch(slab, *reduce_) == sums(type, c.size(), 0, n);
    }

    emulation::Emulation emulation_{{{"FOREGATHER_EMULATION_GPUS", "4"}}}; // outlives what is on it
    std::unique_ptr<device::Device> device_ = device::make_cuda_device(tests::rank());
    std::unique_ptr<device::Stream> reduce_ = device_->stream("reduce", device::Priority::normal);
    device::HostBuffer<std::byte> in_;
};

TEST_F(NcclReductionTest, SumsAtAllSizesAndCounts) {
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {"reduce", 120, 0});
    const base::Elements p = tests::ranks();
    std::int64_t received = 0;
    std::int64_t calls = 0;
    for (const base::Elements n : {base::Elements{1}, p - 1, p, p + 1, base::Elements{4097}}) {
        for (const DType type : {DType::f32, DType::bf16}) {
            if (n == 0) {
                continue; // this device has no buffers of nothing
            }
            EXPECT_TRUE(scatters_right(*communicator, type, n)) << n << " " << base::name_of(type);
            EXPECT_TRUE(reduces_right(*communicator, type, n)) << n << " " << base::name_of(type);
            EXPECT_TRUE(reduces_right(*communicator, type, n)) << "again: " << n;
            calls += 3;
            const std::int64_t bytes = n * base::size_of(type);
            received += (p - 1) * bytes + 2 * 2 * (bytes - bytes / p);
        }
    }
    EXPECT_EQ(communicator->gathers_done(), calls);
    EXPECT_EQ(communicator->gathers_enqueued(), calls);
    EXPECT_EQ(communicator->bytes_received().count, received);
    EXPECT_EQ(emulation::counted("reports"), 0);
}

TEST_F(NcclReductionTest, SumsInGroupsOfShardsAndOfReplicas) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm pair = MPI_COMM_NULL;
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() % 2, -tests::rank(), &half), "split");
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() / 2, tests::rank(), &pair), "split");
    {
        const auto reduce = make_nccl_communicator(half, *device_, {"reduce", 120, 0});
        const auto replica = make_nccl_communicator(pair, *device_, {"replica", 120, 0});
        for (int i = 0; i < 3; ++i) {
            EXPECT_TRUE(scatters_right(*reduce, DType::f32, 301));
            EXPECT_TRUE(reduces_right(*replica, DType::f32, 301));
        }
    }
    mesh::check(MPI_Comm_free(&half), "free");
    mesh::check(MPI_Comm_free(&pair), "free");
}

TEST_F(NcclReductionTest, AnEmulatedLinkTakesItsTime) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {"slow", 120, 1e6});
    EXPECT_TRUE(scatters_right(*communicator, DType::f32, 5000));
    EXPECT_GE(communicator->longest_gather_s(), 0.99 * (tests::ranks() - 1) * 5000 * 4 / 1e6);
}

TEST_F(NcclReductionTest, HalfPrecisionIsRefused) {
    const auto communicator = make_nccl_communicator(MPI_COMM_WORLD, *device_, {"reduce", 120, 0});
    const device::Buffer<float> buffer(*device_, 64, "slab");
    const base::Slab slab(base::Slab(buffer.view()).data, 64, DType::f16);
    EXPECT_THROW(communicator->all_reduce(slab, "reduction", *reduce_), base::Error);
    EXPECT_EQ(communicator->gathers_enqueued(), 0);
}

} // namespace
} // namespace foregather::comm
