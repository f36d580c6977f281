// SPDX-License-Identifier: Apache-2.0
// Pins the test double of NCCL to what its documentation says, on any number of ranks.
#include "doubles_test.hpp"
#include "mpi_test.hpp"

#include <cstdint>
#include <cstring>

#include <mpi.h>
#include <nccl.h>

namespace foregather::emulation {
namespace {

using tests::fewer_than;
using tests::rank;
using tests::ranks;

// The devices of a node with one per rank, the rank's own chosen.
struct Nccl : testing::Test {
    Emulation emulation{Settings{{"FOREGATHER_EMULATION_GPUS", "8"}}};
    cudaStream_t stream = nullptr;

    Nccl() {
        EXPECT_EQ(cudaSetDevice(rank()), cudaSuccess);
        stream = new_stream();
    }

    static ncclUniqueId id_from(int root) {
        ncclUniqueId id{};
        if (rank() == root) {
            EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
        }
        MPI_Bcast(&id, sizeof id, MPI_BYTE, root, MPI_COMM_WORLD);
        return id;
    }

    static ncclComm_t everyone() {
        ncclComm_t comm = nullptr;
        EXPECT_EQ(ncclCommInitRank(&comm, ranks(), id_from(0), rank()), ncclSuccess);
        return comm;
    }

    static ncclResult_t begin(ncclComm_t& comm, const ncclUniqueId& id) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        return ncclCommInitRankConfig(&comm, ranks(), id, rank(), &config);
    }

    static ncclResult_t poll(ncclComm_t comm) {
        for (int i = 0; i < 5000; ++i) {
            ncclResult_t state = ncclSuccess;
            EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
            if (state != ncclInProgress) {
                return state;
            }
            sleep_ms(1);
        }
        return ncclInProgress;
    }

    float* fill(float* data, std::size_t n, float first) const {
        EXPECT_EQ(enqueue_kernel("fill", stream, {writes(data, n)},
                                 [=] {
                                     for (std::size_t i = 0; i < n; ++i) {
                                         data[i] = first + static_cast<float>(i);
                                     }
                                 }),
                  cudaSuccess);
        return data;
    }

    void expect_gathered(const float* data, std::size_t n, const std::vector<int>& from) const {
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        for (std::size_t r = 0; r < from.size(); ++r) {
            for (std::size_t i = 0; i < n; ++i) {
                ASSERT_EQ(data[r * n + i],
                          static_cast<float>(from[r] * 1000) + static_cast<float>(i))
                    << "part " << r << " at " << i;
            }
        }
    }

    float mine() const { return static_cast<float>(rank() * 1000); }

    static std::vector<int> all() {
        std::vector<int> each;
        for (int r = 0; r < ranks(); ++r) {
            each.push_back(r);
        }
        return each;
    }
};

TEST_F(Nccl, GathersFromAllRanks) {
    const ncclComm_t comm = everyone();
    int n = 0;
    EXPECT_EQ(ncclCommCount(comm, &n), ncclSuccess);
    EXPECT_EQ(n, ranks());
    for (const std::size_t size : {1u, 1000u, 100000u}) {
        float* shard = fill(new_floats(size), size, mine());
        float* whole = new_floats(size * static_cast<std::size_t>(ranks()));
        EXPECT_EQ(ncclAllGather(shard, whole, size, ncclFloat, comm, stream), ncclSuccess);
        expect_gathered(whole, size, all());
        float* own = fill(whole + static_cast<std::size_t>(rank()) * size, size, mine());
        EXPECT_EQ(ncclAllGather(own, whole, size, ncclFloat, comm, stream), ncclSuccess);
        expect_gathered(whole, size, all());
    }
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(counted("reports"), 0);
}

TEST_F(Nccl, GathersWithinGroupsThatShareNoRank) {
    const int color = rank() % 2;
    std::vector<int> members;
    for (int r = color; r < ranks(); r += 2) {
        members.push_back(r);
    }
    const ncclUniqueId even = id_from(0);
    const ncclUniqueId odd = fewer_than(2) ? even : id_from(1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, static_cast<int>(members.size()), color == 0 ? even : odd,
                               rank() / 2),
              ncclSuccess);
    const ncclComm_t world = everyone(); // two communicators at once, each on a stream of its own
    float* shard = fill(new_floats(100), 100, mine());
    const cudaStream_t second = new_stream();
    const cudaEvent_t filled = new_event();
    EXPECT_EQ(cudaEventRecord(filled, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(second, filled, 0), cudaSuccess);
    float* part = new_floats(100 * members.size());
    float* whole = new_floats(100 * static_cast<std::size_t>(ranks()));
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(ncclAllGather(shard, part, 100, ncclFloat, comm, stream), ncclSuccess);
        EXPECT_EQ(ncclAllGather(shard, whole, 100, ncclFloat, world, second), ncclSuccess);
    }
    expect_gathered(part, 100, members);
    EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    expect_gathered(whole, 100, all());
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(world), ncclSuccess);
    EXPECT_EQ(counted("reports"), 0);
}

TEST_F(Nccl, RefusesOneDeviceForTwoRanks) {
    if (fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, ranks(), id_from(0), rank()), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected"),
              std::string::npos);
}

TEST_F(Nccl, ANonBlockingInitIsInProgressUntilAllAreThere) {
    const ncclUniqueId id = id_from(0);
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclSuccess;
    float* data = new_floats(static_cast<std::size_t>(ranks()) + 1);
    if (rank() == 0) {
        EXPECT_EQ(begin(comm, id), ncclInProgress);
        if (!fewer_than(2)) { // the others are late
            EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
            EXPECT_EQ(state, ncclInProgress);
            EXPECT_EQ(ncclAllGather(data + ranks(), data, 1, ncclFloat, comm, stream),
                      ncclInvalidUsage);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        EXPECT_EQ(begin(comm, id), ncclInProgress);
    }
    EXPECT_EQ(poll(comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    EXPECT_EQ(poll(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Nccl, ACallInProgressIsNotYetOnItsStream) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(begin(comm, id_from(0)), ncclInProgress);
    EXPECT_EQ(poll(comm), ncclSuccess);
    float* shard = fill(new_floats(4), 4, mine());
    float* whole = new_floats(4 * static_cast<std::size_t>(ranks()));
    const cudaEvent_t gathered = new_event();
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclInProgress);
    EXPECT_EQ(cudaEventRecord(gathered, stream), cudaSuccess); // too early
    EXPECT_EQ(counted("reports.IN_PROGRESS"), 1);
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_EQ(counted("collectives"), 0);
    EXPECT_EQ(poll(comm), ncclSuccess);
    EXPECT_EQ(cudaEventRecord(gathered, stream), cudaSuccess);
    EXPECT_EQ(counted("reports"), 1);
    expect_gathered(whole, 4, all());
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    expect_gathered(whole, 4, all());
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Nccl, AddsInTheOrderOfRanks) {
    const ncclComm_t comm = everyone();
    const auto p = static_cast<std::size_t>(ranks());
    float* whole = fill(new_floats(p * 8), p * 8, mine());
    float* part = new_floats(8);
    EXPECT_EQ(ncclReduceScatter(whole, part, 8, ncclFloat, ncclSum, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(whole, whole, p * 8, ncclFloat, ncclSum, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (std::size_t i = 0; i < p * 8; ++i) {
        const auto expected = static_cast<float>(p * i + 1000 * (p * (p - 1) / 2));
        EXPECT_EQ(whole[i], expected);
        if (i / 8 == static_cast<std::size_t>(rank())) {
            EXPECT_EQ(part[i % 8], expected);
        }
    }
    void* memory = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 16), ncclSuccess);
    auto* bits = static_cast<std::uint16_t*>(memory);
    auto* number = reinterpret_cast<double*>(memory) + 1;
    EXPECT_EQ(enqueue_kernel("set", stream, {{memory, 16, true}},
                             [=] { bits[0] = 0x3F80, *number = rank() == 0 ? 1e16 : 1.0; }),
              cudaSuccess);
    EXPECT_EQ(ncclAllReduce(bits, bits, 1, ncclBfloat16, ncclSum, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(number, number, 1, ncclDouble, ncclSum, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(bits, bits, 1, ncclInt8, ncclSum, comm, stream), ncclInvalidUsage);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const std::uint16_t sums[] = {0x3F80, 0x4000, 0x4040, 0x4080};
    EXPECT_EQ(bits[0], sums[p - 1]);
    EXPECT_EQ(*number, 1e16) << "another order would not lose the ones that come after";
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(counted("reports"), 0);
}

TEST_F(Nccl, AGroupEnqueuesAtItsEnd) {
    const ncclComm_t comm = everyone();
    float* shard = fill(new_floats(4), 4, mine());
    float* whole = new_floats(4 * static_cast<std::size_t>(ranks()));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    EXPECT_EQ(counted("collectives"), 0);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(counted("collectives"), 1);
    expect_gathered(whole, 4, all());
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Nccl, AnAbortEndsWhatWaitsForAPeer) {
    if (fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const ncclComm_t comm = everyone();
    float* shard = fill(new_floats(4), 4, mine());
    float* whole = new_floats(4 * static_cast<std::size_t>(ranks()));
    const cudaEvent_t gathered = new_event();
    if (rank() == 0) { // the others never call it
        EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
        EXPECT_EQ(cudaEventRecord(gathered, stream), cudaSuccess);
        sleep_ms(20);
        EXPECT_EQ(cudaEventQuery(gathered), cudaErrorNotReady);
    }
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(gathered), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

TEST_F(Nccl, ACollectiveCanBeMadeToHang) {
    const Emulation hanging(
        Settings{{"FOREGATHER_EMULATION_GPUS", "8"}, {"FOREGATHER_EMULATION_NCCL_HANG", "2@0"}});
    EXPECT_EQ(cudaSetDevice(rank()), cudaSuccess);
    stream = new_stream();
    const ncclComm_t comm = everyone();
    float* shard = fill(new_floats(4), 4, mine());
    float* whole = new_floats(4 * static_cast<std::size_t>(ranks()));
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    expect_gathered(whole, 4, all());
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    sleep_ms(20);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST_F(Nccl, ErrorsComeAsynchronously) {
    const Emulation failing(Settings{{"FOREGATHER_EMULATION_GPUS", "8"},
                                     {"FOREGATHER_EMULATION_NCCL_ASYNC_ERROR", "1@0"}});
    EXPECT_EQ(cudaSetDevice(rank()), cudaSuccess);
    stream = new_stream();
    const ncclComm_t comm = everyone();
    float* shard = fill(new_floats(4), 4, mine());
    float* whole = new_floats(4 * static_cast<std::size_t>(ranks()));
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(poll(comm), rank() == 0 ? ncclRemoteError : ncclSuccess);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(Nccl, RanksThatCallAnotherCollectiveAreFound) {
    if (fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const ncclComm_t comm = everyone();
    float* whole = new_floats(8 * static_cast<std::size_t>(ranks()));
    float* shard = fill(new_floats(8), 8, mine());
    EXPECT_EQ(ncclAllGather(shard, whole, rank() == 1 ? 8 : 4, ncclFloat, comm, stream),
              ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(poll(comm), ncclInternalError);
    EXPECT_EQ(counted("reports.COLLECTIVE"), 1);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(Nccl, AGatherThatNobodyWaitsForIsARace) {
    const ncclComm_t comm = everyone();
    float* shard = fill(new_floats(4), 4, mine());
    const auto n = 4 * static_cast<std::size_t>(ranks());
    float* whole = new_floats(n);
    const cudaStream_t compute = new_stream();
    EXPECT_EQ(ncclAllGather(shard, whole, 4, ncclFloat, comm, stream), ncclSuccess);
    EXPECT_EQ(enqueue_kernel("use", compute, {reads(whole, n)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1);
    EXPECT_EQ(ncclAllGather(whole + 1, whole, 4, ncclFloat, comm, stream), ncclInvalidArgument)
        << "overlapping, and not in place";
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Nccl, WindowsAreAcceptedOnWholePages) {
    const ncclComm_t comm = everyone();
    void* memory = nullptr;
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 8192), ncclSuccess);
    EXPECT_EQ(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    ncclWindow_t none = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(comm, static_cast<char*>(memory) + 16, 16, &none, 0),
              ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

} // namespace
} // namespace foregather::emulation
