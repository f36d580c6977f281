// SPDX-License-Identifier: Apache-2.0
// The inputs of one pass on their way to the device: host and device memory for the largest pack.
#pragma once

#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>

#include "packs.hpp"

namespace foregather::job {

class PackBuffers {
public:
    PackBuffers() = default;
    // For packs of up to so many tokens and windows (or documents).
    PackBuffers(device::Device& device, base::Elements tokens, std::int64_t windows)
        : device_(&device), ids_(device, tokens, "token ids"),
          positions_(device, tokens, "positions"),
          offsets_(device, windows + 1, "document offsets"), rows_(device, tokens, "scored rows"),
          targets_(device, tokens, "targets") {}

    struct Views { // in device memory
        kernels::Ids ids, positions, offsets, rows, targets;
    };
    // Enqueues copies to the device; they must be done before this is called again. Does not block.
    Views upload(const PackInputs& inputs, device::Stream& stream) const {
        return {send(inputs.ids, ids_, stream), send(inputs.positions, positions_, stream),
                send(inputs.offsets, offsets_, stream), send(inputs.rows, rows_, stream),
                send(inputs.targets, targets_, stream)};
    }

private:
    struct Both { // one array on both sides
        Both() = default;
        Both(device::Device& where, base::Elements n, const char* purpose)
            : host(where, n, purpose), device(where, n, purpose) {}
        device::HostBuffer<std::int32_t> host;
        device::Buffer<std::int32_t> device;
    };
    kernels::Ids send(const std::vector<std::int32_t>& from, const Both& to,
                      device::Stream& stream) const;

    device::Device* device_ = nullptr;
    Both ids_, positions_, offsets_, rows_, targets_;
};

} // namespace foregather::job
