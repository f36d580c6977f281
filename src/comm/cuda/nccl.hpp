// SPDX-License-Identifier: Apache-2.0
// NCCL's functions, found when they are needed: a program that computes on the host neither loads
// nor needs the library.
#pragma once

#include <string>

#include <nccl.h>

#include <foregather/base/error.hpp>

namespace foregather::comm {

struct Nccl {
    decltype(&ncclGetVersion) get_version;
    decltype(&ncclGetErrorString) error_string;
    decltype(&ncclGetLastError) last_error;
    decltype(&ncclGetUniqueId) unique_id;
    decltype(&ncclCommInitRankConfig) init;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclCommFinalize) finalize;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclMemAlloc) allocate;
    decltype(&ncclMemFree) release;
    decltype(&ncclAllGather) all_gather;
    decltype(&ncclReduceScatter) reduce_scatter;
    decltype(&ncclAllReduce) all_reduce;

    // Throws Error(failed) with NCCL's text and its last words unless rc is ncclSuccess.
    // `attempted` completes "NCCL failed to ...".
    void check(ncclResult_t rc, const std::string& attempted, ncclComm_t comm = nullptr,
               base::Where where = base::Where::here()) const;
};

// The variable that lets NCCL connect when an algorithm is first used; this program sets it to 0
// where it is not set.
inline constexpr const char* connect_late = "NCCL_RUNTIME_CONNECT";

// Loaded on the first call, for good. Throws Error(refused) with the loader's reason.
const Nccl& nccl();

} // namespace foregather::comm
