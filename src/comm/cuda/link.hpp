// SPDX-License-Identifier: Apache-2.0
// The emulated link of comm.link_rate on a CUDA stream: host functions before and behind a gather,
// of which the second sleeps until the bytes would have come over it.
#pragma once

#include <chrono>
#include <memory>

#include <foregather/base/types.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::comm {

class Link {
public:
    using Duration = std::chrono::duration<double>;

    // 0: no link, and all calls do nothing.
    explicit Link(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

    // One gather's: must live until end() has been run on the stream.
    struct Passage {
        std::chrono::steady_clock::time_point begin;
        Duration least{};
    };
    // Enqueue; do not block.
    std::unique_ptr<Passage> begin(base::Bytes received, device::Stream& stream) const;
    void end(Passage* passage, device::Stream& stream) const;

    Duration time(base::Bytes received) const; // that the link takes for so many

private:
    double bytes_per_second_;
};

} // namespace foregather::comm
