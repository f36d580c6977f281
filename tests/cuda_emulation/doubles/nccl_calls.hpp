// SPDX-License-Identifier: Apache-2.0
// What the two halves of the test double of NCCL know of each other. Tests only.
#pragma once

#include "nccl.hpp"

namespace foregather::emulation {

// The communicator of a handle; null after a report if there is none.
ncclComm* find_communicator(ncclComm_t handle, const char* function);

// The stream may be given work again: no call that was to put some there is in progress.
void unblock(cudaStream_t stream);

} // namespace foregather::emulation
