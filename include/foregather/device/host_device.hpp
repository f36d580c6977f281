// SPDX-License-Identifier: Apache-2.0
// The host as a device: streams are worker threads, events are time-stamped flags.
#pragma once

#include <memory>

#include <foregather/device/device.hpp>

namespace foregather::device {

// threads: of streams with Priority::normal, which compute; streams of high priority have one
// thread.
std::unique_ptr<Device> make_host_device(int threads);

} // namespace foregather::device
