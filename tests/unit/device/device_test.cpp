// SPDX-License-Identifier: Apache-2.0
// Memory of a device is counted, aligned and refused with a reason; copies run in stream order and
// refuse sizes that differ.
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

using namespace foregather;

namespace {

class DeviceTest : public testing::Test {
protected:
    std::unique_ptr<device::Device> device_ = device::make_host_device(2);
    std::unique_ptr<device::Stream> stream_ = device_->stream("compute", device::Priority::normal);
};

} // namespace

TEST_F(DeviceTest, counts_allocations_and_their_bytes_for_good) {
    EXPECT_EQ(device_->allocations(), 0);
    {
        const device::Buffer<float> buffer(*device_, 1000, "a test");
        EXPECT_EQ(device_->allocations(), 1);
        EXPECT_EQ(device_->allocated(), base::Bytes{4000});
    }
    const device::Buffer<double> other(*device_, 10, "a test");
    EXPECT_EQ(device_->allocations(), 2) << "how many, ever: what was freed still counts";
    EXPECT_EQ(device_->allocated(), base::Bytes{4080});
}

TEST_F(DeviceTest, memory_begins_at_a_page_and_holds_what_was_asked) {
    for (const base::Elements n : {1, 1023, 1024, 1025}) {
        const device::Buffer<float> buffer(*device_, n, "a test");
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.view().data()) % 4096, 0U);
        EXPECT_EQ(buffer.view().size(), static_cast<std::size_t>(n));
        EXPECT_EQ(buffer.bytes(), base::Bytes{4 * n});
        std::fill(buffer.view().begin(), buffer.view().end(), 1.0F); // writable to the end
    }
}

TEST_F(DeviceTest, buffers_move_and_may_be_empty) {
    device::Buffer<int> from(*device_, 4, "a test");
    from.view()[3] = 42;
    const device::Buffer<int> to(std::move(from));
    EXPECT_EQ(to.view()[3], 42);
    EXPECT_EQ(to.first(2).size(), 2U);
    EXPECT_TRUE(device::Buffer<int>().view().empty());
    EXPECT_TRUE(device::Buffer<int>(*device_, 0, "nothing").view().empty());
}

TEST_F(DeviceTest, memory_that_is_not_to_be_had_is_refused_with_purpose_and_size) {
    const base::Bytes much{std::numeric_limits<std::int64_t>::max() / 2};
    try {
        device_->allocate(much, "gathered units");
        ADD_FAILURE() << "four exabytes were handed out";
    } catch (const base::Error& error) {
        EXPECT_EQ(error.status(), base::Status::failed);
        EXPECT_NE(std::string(error.what()).find("gathered units"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find(std::to_string(much.count)), std::string::npos);
    }
    EXPECT_EQ(device_->allocations(), 0);
    EXPECT_EQ(device_->allocated(), base::Bytes{0});
}

TEST_F(DeviceTest, copies_run_in_stream_order) {
    const std::vector<float> host = {1, 2, 3};
    std::vector<float> back(3);
    const device::Buffer<float> buffer(*device_, 3, "a test");
    device::host_stream(*stream_).enqueue(
        [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
    device_->copy_in(base::View<const float>(host), buffer.view(), *stream_);
    device::host_stream(*stream_).enqueue([&] { buffer.view()[1] = 20; });
    device_->copy_out(base::View<const float>(buffer.view()), base::View<float>(back), *stream_);
    stream_->sync();
    EXPECT_EQ(back, (std::vector<float>{1, 20, 3}));
}

TEST_F(DeviceTest, a_copy_between_sizes_that_differ_is_refused) {
    std::vector<float> host(4);
    const device::Buffer<float> buffer(*device_, 3, "a test");
    EXPECT_THROW(device_->copy_in(base::View<const float>(host), buffer.view(), *stream_),
                 base::Error);
    EXPECT_THROW(device_->copy_out(base::View<const float>(buffer.view()), base::View<float>(host),
                                   *stream_),
                 base::Error);
    stream_->sync();
}

TEST_F(DeviceTest, a_copy_of_nothing_is_done_at_once) {
    device_->copy_in(base::View<const float>(), base::View<float>(), *stream_);
    stream_->sync();
}

TEST_F(DeviceTest, says_what_it_is) {
    const device::Facts facts = device_->facts();
    EXPECT_EQ(facts.kind, "host");
    EXPECT_EQ(facts.threads, 2);
    EXPECT_FALSE(facts.name.empty());
}
