// SPDX-License-Identifier: Apache-2.0
// What tests may ask of the test doubles: figures counted so far, and a fresh start with the
// environment read anew. Programs under test never see it. Tests only.
//
// The environment of the doubles; names begin with FOREGATHER_EMULATION_:
//   GPUS         devices of this node; 0 (default): none, "none": no driver. CUDA_VISIBLE_DEVICES
//                chooses among them by number.
//   MEMORY       bytes of each device for each process (default 4 GiB)
//   CAPABILITY   of each device, times ten (default 90)
//   SHARED       bytes of shared memory that a block may have at most (default 227 KiB)
//   PEERS        0: devices cannot reach each other's memory
//   DELAY_US     most microseconds that a worker sleeps before an operation (default 0)
//   SEED         of these delays
//   FAIL         "name:call[@rank],...": that call of a function, of all launches of a kernel by
//                its name, or that faults when it runs ("kernel_fault", "copy_fault"), fails
//   STRICT       1: the first report ends the process with status 97
//   REPORT       file, with ".<rank>" (or the process id) behind it: "name value" lines at exit
//   NCCL_HANG         "<n>[@<rank>]": the n-th collective of the process never starts
//   NCCL_ASYNC_ERROR  likewise: the communicator fails after it
//   NCCL_IN_PROGRESS  each so-manieth collective of a non-blocking communicator, from the first, is
//                     in progress at first, and on its stream after the second poll (default 5;
//                     0: never)
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
