// SPDX-License-Identifier: Apache-2.0
// What tests may ask of the test doubles: figures counted so far, and a fresh start with the
// environment read anew. Programs under test never see it. Tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace foregather::emulation {

// A figure of the report file by its name, as "reports" or "call.cudaMalloc"; 0 if never counted.
std::int64_t counted(const std::string& name);

// Forgets devices, memory, handles, figures and failures, and reads the environment anew. All
// streams must have been drained; what was allocated is freed.
void restart();

} // namespace foregather::emulation

// Names a range of an allocation, or a stream (bytes = 0), for messages.
extern "C" void foregather_emulation_name(const void* what, std::size_t bytes, const char* name);
