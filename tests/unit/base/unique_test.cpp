// SPDX-License-Identifier: Apache-2.0
// An owner of a C handle closes it exactly once, however it is moved, reset or thrown past. Which
// handles there are is other rooms' business.
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>

using namespace foregather;

namespace {

std::vector<int> closed; // handles in the order they were closed

struct Closer {
    static int null() { return -1; }
    void operator()(int handle) const noexcept { closed.push_back(handle); }
};
using Handle = base::Unique<int, Closer>;

class UniqueTest : public testing::Test {
protected:
    void SetUp() override { closed.clear(); }
};

using Closed = std::vector<int>;

} // namespace

TEST_F(UniqueTest, closes_its_handle_once_at_the_end_of_its_life) {
    {
        const Handle handle(7);
        EXPECT_TRUE(handle);
        EXPECT_EQ(handle.handle(), 7);
        EXPECT_EQ(closed, Closed{});
    }
    EXPECT_EQ(closed, Closed{7});
}

TEST_F(UniqueTest, owning_nothing_closes_nothing) {
    {
        Handle handle;
        EXPECT_FALSE(handle);
        handle.reset();
    }
    EXPECT_EQ(closed, Closed{});
}

TEST_F(UniqueTest, a_move_hands_the_handle_over) {
    {
        Handle from(7);
        const Handle to(std::move(from));
        EXPECT_FALSE(from); // NOLINT: that a moved-from owner is empty is what is tested
        EXPECT_EQ(to.handle(), 7);
    }
    EXPECT_EQ(closed, Closed{7});
}

TEST_F(UniqueTest, a_move_assignment_closes_what_was_owned_before) {
    {
        Handle to(1);
        Handle from(2);
        to = std::move(from);
        EXPECT_EQ(closed, Closed{1});
        EXPECT_EQ(to.handle(), 2);
    }
    EXPECT_EQ(closed, (Closed{1, 2}));
}

TEST_F(UniqueTest, a_move_to_itself_keeps_the_handle) {
    Handle handle(7);
    Handle& alias = handle;
    handle = std::move(alias);
    EXPECT_EQ(handle.handle(), 7);
    EXPECT_EQ(closed, Closed{});
}

TEST_F(UniqueTest, a_reset_closes_now_and_not_again) {
    {
        Handle handle(7);
        handle.reset();
        EXPECT_EQ(closed, Closed{7});
        EXPECT_FALSE(handle);
        handle.reset();
    }
    EXPECT_EQ(closed, Closed{7});
}

TEST_F(UniqueTest, handles_in_a_growing_vector_are_closed_once_each) {
    {
        std::vector<Handle> handles;
        for (int i = 0; i < 20; ++i) {
            handles.emplace_back(i);
        }
        EXPECT_EQ(closed, Closed{});
    }
    EXPECT_EQ(closed.size(), 20U);
}

TEST_F(UniqueTest, an_exception_closes_what_it_passes) {
    EXPECT_THROW(
        {
            const Handle handle(7);
            throw std::runtime_error("on its way");
        },
        std::runtime_error);
    EXPECT_EQ(closed, Closed{7});
}
