// SPDX-License-Identifier: Apache-2.0
// The control plane: each small collective against its definition, and together(), which turns an
// error of one rank into the same error on all (field case j1).
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/mesh/control.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;

namespace {

// What together() throws when `work` is run, "" when nothing; its status in `status`.
std::string agreed(const mesh::Control& control, const std::function<void()>& work,
                   base::Status& status) {
    try {
        control.together(work);
    } catch (const mesh::AgreedError& error) {
        status = error.status();
        return error.what();
    }
    return "";
}

} // namespace

TEST(ControlTest, ranks_are_those_of_its_communicator) {
    const mesh::Control control(MPI_COMM_WORLD);
    EXPECT_EQ(control.rank(), tests::rank());
    EXPECT_EQ(control.size(), tests::ranks());
    EXPECT_EQ(control.first(), tests::rank() == 0);
}

TEST(ControlTest, broadcasts_what_rank_zero_has) {
    const mesh::Control control(MPI_COMM_WORLD);
    const std::int64_t number = tests::rank() == 0 ? 5'000'000'000 : tests::rank();
    EXPECT_EQ(control.broadcast(number), 5'000'000'000);
    const std::string deck =
        "[prefetch]\ndepth = 1\n" + std::string(1, '\0') + std::string(100'000, 'x');
    EXPECT_EQ(control.broadcast(tests::rank() == 0 ? deck : "something else, longer or shorter"),
              deck);
    EXPECT_EQ(control.broadcast(tests::rank() == 0 ? std::string() : "not empty"), "");
}

TEST(ControlTest, gathers_texts_of_any_length_by_rank) {
    const mesh::Control control(MPI_COMM_WORLD);
    const auto text = [](int r) {
        return std::string(static_cast<std::size_t>(r * r * 1000), 'a');
    };
    const auto all = control.gather(text(tests::rank())); // rank 0's is empty
    ASSERT_EQ(all.size(), static_cast<std::size_t>(tests::ranks()));
    for (int r = 0; r < tests::ranks(); ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)], text(r));
    }
}

TEST(ControlTest, gathers_numbers_by_rank) {
    const mesh::Control control(MPI_COMM_WORLD);
    const auto whole = control.gather(std::int64_t{3'000'000'000} + tests::rank());
    const auto real = control.gather(0.5 + tests::rank());
    ASSERT_EQ(whole.size(), static_cast<std::size_t>(tests::ranks()));
    ASSERT_EQ(real.size(), static_cast<std::size_t>(tests::ranks()));
    for (int r = 0; r < tests::ranks(); ++r) {
        EXPECT_EQ(whole[static_cast<std::size_t>(r)], 3'000'000'000 + r);
        EXPECT_EQ(real[static_cast<std::size_t>(r)], 0.5 + r);
    }
}

TEST(ControlTest, sums_and_finds_the_largest) {
    const mesh::Control control(MPI_COMM_WORLD);
    const int n = tests::ranks();
    EXPECT_EQ(control.sum(tests::rank() + 1), n * (n + 1) / 2);
    EXPECT_EQ(control.max(-tests::rank() - 1), -1);
    EXPECT_EQ(control.max(tests::rank()), n - 1);
    control.barrier();
}

TEST(ControlTest, its_messages_do_not_mix_with_those_of_another) {
    const mesh::Control one(MPI_COMM_WORLD);
    const mesh::Control other(MPI_COMM_WORLD);
    EXPECT_NE(one.comm(), MPI_COMM_WORLD);
    EXPECT_NE(one.comm(), other.comm());
}

TEST(TogetherTest, runs_the_work_of_all_when_none_throws) {
    const mesh::Control control(MPI_COMM_WORLD);
    bool ran = false;
    base::Status status = base::Status::done;
    EXPECT_EQ(agreed(
                  control, [&] { ran = true; }, status),
              "");
    EXPECT_TRUE(ran);
}

TEST(TogetherTest, an_error_of_rank_zero_is_told_as_it_is) {
    const mesh::Control control(MPI_COMM_WORLD);
    base::Status status = base::Status::done;
    const auto work = [] {
        if (tests::rank() == 0) {
            base::refuse("deck.txt:3: no such key");
        }
    };
    EXPECT_EQ(agreed(control, work, status), "deck.txt:3: no such key");
    EXPECT_EQ(status, base::Status::refused);
}

TEST(TogetherTest, j1_an_error_of_another_rank_is_told_by_all_with_rank_and_host) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const mesh::Control control(MPI_COMM_WORLD);
    const int last = tests::ranks() - 1;
    const auto hosts = control.gather(mesh::host_name());
    base::Status status = base::Status::done;
    const auto work = [&] {
        if (tests::rank() == last) {
            base::fail("weights.h5 cannot be read");
        }
    };
    EXPECT_EQ(agreed(control, work, status), "rank " + std::to_string(last) + " (" + hosts.back() +
                                                 "): weights.h5 cannot be read");
    EXPECT_EQ(status, base::Status::failed);
}

TEST(TogetherTest, of_several_errors_the_lowest_ranks_is_told) {
    if (tests::fewer_than(3)) {
        GTEST_SKIP() << "needs 3 ranks";
    }
    const mesh::Control control(MPI_COMM_WORLD);
    base::Status status = base::Status::done;
    const auto work = [] {
        if (tests::rank() == 1) {
            base::refuse("mine");
        }
        if (tests::rank() > 1) {
            base::fail("later");
        }
    };
    const std::string text = agreed(control, work, status);
    EXPECT_EQ(text.rfind("rank 1 (", 0), 0U) << text;
    EXPECT_EQ(text.substr(text.size() - 4), "mine");
    EXPECT_EQ(status, base::Status::refused) << "the status of the error that is told";
}

TEST(TogetherTest, an_exception_that_is_no_error_of_ours_counts_as_failed) {
    const mesh::Control control(MPI_COMM_WORLD);
    base::Status status = base::Status::done;
    const auto work = [] {
        if (tests::rank() == 0) {
            throw std::out_of_range("vector::at");
        }
    };
    EXPECT_EQ(agreed(control, work, status), "vector::at");
    EXPECT_EQ(status, base::Status::failed);
}

TEST(TogetherTest, ranks_can_go_on_together_after_an_error) {
    const mesh::Control control(MPI_COMM_WORLD);
    base::Status status = base::Status::done;
    EXPECT_NE(agreed(
                  control, [] { base::fail("all of us"); }, status),
              "");
    EXPECT_EQ(control.sum(1), tests::ranks());
}

TEST(CheckTest, tells_what_was_attempted_and_what_mpi_says) {
    mesh::check(MPI_SUCCESS, "do nothing");
    try {
        mesh::check(MPI_ERR_TRUNCATE, "broadcast the deck");
        ADD_FAILURE() << "an error code passed";
    } catch (const base::Error& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.rfind("MPI failed to broadcast the deck: MPI_ERR_TRUNCATE", 0), 0U) << text;
        EXPECT_EQ(error.status(), base::Status::failed);
    }
}

TEST(DuplicateTest, returns_errors_instead_of_ending_the_job) {
    const mesh::Comm copy = mesh::duplicate(MPI_COMM_WORLD, "a test");
    int value = 0;
    const int nobody = tests::ranks();
    EXPECT_THROW(
        mesh::check(MPI_Send(&value, 1, MPI_INT, nobody, 0, copy.handle()), "send to nobody"),
        base::Error);
}
