// SPDX-License-Identifier: Apache-2.0
// What is over in time goes on; what is not ends the process with a line.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/mesh/time_limit.hpp>

namespace foregather::mesh {
namespace {

using namespace std::chrono_literals;

TEST(TimeLimit, WhatIsOverInTimeIsLeftAlone) {
    const auto begin = std::chrono::steady_clock::now();
    { const TimeLimit limit("nothing", 60); }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(TimeLimitDeathTest, WhatLastsLongerEndsTheProcessWithOneLine) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const TimeLimit limit("MPI's start", 0.05);
            std::this_thread::sleep_for(20s);
        },
        testing::ExitedWithCode(1),
        "foregather: MPI's start has lasted longer than 0.05 s: a rank");
}

// The launcher's rank 0 is to be the one who tells.
TEST(TimeLimitDeathTest, OthersThanTheSpeakerWaitForIt) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            setenv("OMPI_COMM_WORLD_RANK", "1", 1);
            const TimeLimit limit("MPI's end", 0.05);
            std::this_thread::sleep_for(1s);
            std::_Exit(7);
        },
        testing::ExitedWithCode(7), "^$");
}

// Its time has run out while it stood still, and then others may have told.
TEST(TimeLimitDeathTest, AProcessThatWasStoppedItselfBeginsAnew) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const TimeLimit limit("MPI's end", 1);
            const pid_t self = getpid();
            if (fork() == 0) {
                std::this_thread::sleep_for(2500ms);
                kill(self, SIGCONT);
                std::_Exit(0);
            }
            raise(SIGSTOP);
            std::this_thread::sleep_for(300ms);
            std::_Exit(7);
        },
        testing::ExitedWithCode(7), "^$");
}

} // namespace
} // namespace foregather::mesh
