// SPDX-License-Identifier: Apache-2.0
// Sleeping in stream order.
#include "link.hpp"

#include <thread>

#include <foregather/device/cuda_stream.hpp>

namespace foregather::comm {
namespace {

void enter(void* data) {
    static_cast<Link::Passage*>(data)->begin = std::chrono::steady_clock::now();
}

void leave(void* data) {
    const auto& passage = *static_cast<Link::Passage*>(data);
    std::this_thread::sleep_until(
        passage.begin +
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(passage.least));
}

} // namespace

Link::Duration Link::time(base::Bytes received) const {
    return Duration(bytes_per_second_ > 0 ? static_cast<double>(received.count) / bytes_per_second_
                                          : 0);
}

std::unique_ptr<Link::Passage> Link::begin(base::Bytes received, device::Stream& stream) const {
    if (bytes_per_second_ <= 0) {
        return nullptr;
    }
    auto passage = std::make_unique<Passage>(Passage{{}, time(received)});
    device::check(cudaLaunchHostFunc(device::cuda_stream(stream), enter, passage.get()),
                  "enqueue the emulated link's begin");
    return passage;
}

void Link::end(Passage* passage, device::Stream& stream) const {
    if (passage != nullptr) {
        device::check(cudaLaunchHostFunc(device::cuda_stream(stream), leave, passage),
                      "enqueue the emulated link's end");
    }
}

} // namespace foregather::comm
