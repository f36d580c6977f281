// SPDX-License-Identifier: Apache-2.0
// Loading NCCL, and its errors in words.
#include "nccl.hpp"

#include <cstdlib>

#include <foregather/base/shared_library.hpp>
#include <foregather/comm/nccl_communicator.hpp>

namespace foregather::comm {
namespace {

Nccl load() {
    // Connections at set-up and not at the first use of an algorithm, which would be in a pass.
    setenv(connect_late, "0", 0);
    const base::SharedLibrary library(
        "libnccl.so.2", "gathers weights between GPUs",
        "install NCCL, put its folder on LD_LIBRARY_PATH, or use device.kind = host");
    return {library.function<decltype(&ncclGetVersion)>("ncclGetVersion"),
            library.function<decltype(&ncclGetErrorString)>("ncclGetErrorString"),
            library.function<decltype(&ncclGetLastError)>("ncclGetLastError"),
            library.function<decltype(&ncclGetUniqueId)>("ncclGetUniqueId"),
            library.function<decltype(&ncclCommInitRankConfig)>("ncclCommInitRankConfig"),
            library.function<decltype(&ncclCommGetAsyncError)>("ncclCommGetAsyncError"),
            library.function<decltype(&ncclCommFinalize)>("ncclCommFinalize"),
            library.function<decltype(&ncclCommDestroy)>("ncclCommDestroy"),
            library.function<decltype(&ncclCommAbort)>("ncclCommAbort"),
            library.function<decltype(&ncclMemAlloc)>("ncclMemAlloc"),
            library.function<decltype(&ncclMemFree)>("ncclMemFree"),
            library.function<decltype(&ncclAllGather)>("ncclAllGather"),
            library.function<decltype(&ncclReduceScatter)>("ncclReduceScatter"),
            library.function<decltype(&ncclAllReduce)>("ncclAllReduce")};
}

std::string dotted(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

} // namespace

const Nccl& nccl() {
    static const Nccl loaded = load();
    return loaded;
}

void Nccl::check(ncclResult_t rc, const std::string& attempted, ncclComm_t comm,
                 base::Where where) const {
    if (rc == ncclSuccess) {
        return;
    }
    const char* words = last_error(comm);
    throw base::Error(base::Status::failed,
                      "NCCL failed to " + attempted + ": " + error_string(rc) +
                          (words == nullptr || *words == '\0' ? "" : std::string("; ") + words),
                      where);
}

std::string nccl_version() {
    int version = 0;
    nccl().check(nccl().get_version(&version), "tell its version");
    return dotted(version);
}

std::string nccl_built_with() { return dotted(NCCL_VERSION_CODE); }

} // namespace foregather::comm
