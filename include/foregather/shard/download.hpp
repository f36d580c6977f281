// SPDX-License-Identifier: Apache-2.0
// A rank's parts as the host reads them: where they lie, or copied down piece by piece. What is
// done with the values is the caller's.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/device/device.hpp>

namespace foregather::shard {

class Download {
public:
    // Two staging buffers of staging_bytes each, at least one element; none where the host can read
    // the device's memory. The device must outlive it.
    Download(device::Device& device, base::Bytes staging_bytes);
    ~Download(); // waits for copies
    Download(const Download&) = delete;
    Download& operator=(const Download&) = delete;

    // The values live until the call returns; `first` is their place in the part.
    using Use = std::function<void(base::Elements first, base::View<const float> values)>;
    // Hands over all of a part in order: at once where it can be read where it lies; else in
    // pieces, the next one on its way while one is used. Whatever wrote the part must be done.
    // Blocks; throws what a copy or `use` throws.
    void read(base::View<const float> part, const Use& use);

private:
    struct Staging {
        device::HostBuffer<float> memory;
        std::unique_ptr<device::Event> filled;
    };

    device::Device& device_;
    std::array<Staging, 2> staging_;
    std::unique_ptr<device::Stream> stream_; // nullptr: nothing is copied
};

} // namespace foregather::shard
