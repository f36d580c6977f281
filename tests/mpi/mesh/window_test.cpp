// SPDX-License-Identifier: Apache-2.0
// Shared windows: the same memory on every rank of the node, zero at first, page-aligned.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>

#include <gtest/gtest.h>

#include <foregather/mesh/control.hpp>
#include <foregather/mesh/window.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;

namespace {

constexpr std::int64_t words = 1000; // per rank

std::uint64_t* words_of(const mesh::SharedWindow& window, int rank) {
    return reinterpret_cast<std::uint64_t*>(window.data()) + rank * words;
}

} // namespace

TEST(SharedWindowTest, is_zero_and_page_aligned_on_every_rank) {
    for (const std::int64_t bytes : {1, 4095, 4096, 4097, 1'000'000}) {
        const mesh::SharedWindow window(MPI_COMM_WORLD, {bytes});
        EXPECT_EQ(window.size(), base::Bytes{bytes});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(window.data()) % 4096, 0U);
        EXPECT_TRUE(std::all_of(window.data(), window.data() + bytes,
                                [](std::byte b) { return b == std::byte{0}; }));
        mesh::Control(MPI_COMM_WORLD).barrier();
    }
}

TEST(SharedWindowTest, what_each_rank_writes_all_others_read) {
    const mesh::Control control(MPI_COMM_WORLD);
    const mesh::SharedWindow window(MPI_COMM_WORLD, {8 * words * tests::ranks()});
    for (std::int64_t i = 0; i < words; ++i) {
        words_of(window, tests::rank())[i] =
            static_cast<std::uint64_t>(tests::rank() * 10'000 + i + 1);
    }
    control.barrier();
    std::int64_t wrong = 0;
    for (int r = 0; r < tests::ranks(); ++r) {
        for (std::int64_t i = 0; i < words; ++i) {
            wrong +=
                words_of(window, r)[i] != static_cast<std::uint64_t>(r * 10'000 + i + 1) ? 1 : 0;
        }
    }
    EXPECT_EQ(wrong, 0);
    control.barrier();
}

TEST(SharedWindowTest, a_flag_that_one_rank_sets_is_seen_by_those_that_poll) {
    const mesh::SharedWindow window(MPI_COMM_WORLD, {16});
    auto* data = reinterpret_cast<std::uint64_t*>(window.data());
    std::atomic_ref flag(data[0]);
    if (tests::rank() == tests::ranks() - 1) {
        data[1] = 42; // published by the flag
        flag.store(1, std::memory_order_release);
    }
    while (flag.load(std::memory_order_acquire) == 0) {
    }
    EXPECT_EQ(data[1], 42U);
    EXPECT_TRUE(tests::agree(true));
}

TEST(WindowSpaceTest, names_a_directory_and_its_free_space) {
    const mesh::WindowSpace space = mesh::window_space();
    EXPECT_TRUE(std::filesystem::is_directory(space.directory)) << space.directory;
    EXPECT_GT(space.free.count, 0);
    EXPECT_LE(space.free.count,
              static_cast<std::int64_t>(std::filesystem::space(space.directory).capacity));
}
