// SPDX-License-Identifier: Apache-2.0
// Communicators of the test double of NCCL, behind the real symbols: how they begin, end, fail and
// are given up. What they carry is decided elsewhere. Tests only.
#include <cstring>
#include <exception>
#include <memory>
#include <set>
#include <thread>

#include "call.hpp"
#include "nccl_calls.hpp"

using namespace foregather::emulation;

namespace {

constexpr std::uint64_t id_mark = 0x666f726567617468u;
constexpr std::size_t granularity = 4096;

struct Registry {
    std::mutex mutex;
    std::vector<std::unique_ptr<ncclComm>> all; // never freed: stale handles are found
    std::string message;
};

Registry& registry() {
    static auto* const the = new Registry;
    return *the;
}

void set_state(ncclComm& comm, ncclResult_t state, const std::string& message) {
    const std::lock_guard lock(comm.mutex);
    comm.state = state;
    comm.message = message;
}

Member self_of(const ncclComm& comm) {
    Member self;
    self.rank = comm.rank;
    self.ranks = comm.ranks;
    self.world_rank = mpi_rank();
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, comm.device) != cudaSuccess) {
        throw std::runtime_error("the device cannot be used");
    }
    self.bus = properties.pciBusID;
    std::memcpy(self.uuid.data(), properties.uuid.bytes, self.uuid.size());
    return self;
}

// Meets the other ranks; the outcome is the communicator's state.
void begin(ncclComm& comm, const UniqueId& id, const Member& self) {
    try {
        const std::vector<Member> members = meet(id, self, comm.aborted);
        for (std::size_t i = 0; i < members.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                if (members[i].uuid == members[j].uuid) {
                    set_state(comm, ncclInvalidUsage,
                              "Duplicate GPU detected : rank " + std::to_string(j) + " and rank " +
                                  std::to_string(i) + " both on the device of bus " +
                                  std::to_string(members[i].bus));
                    return;
                }
            }
            comm.world_ranks.push_back(members[i].world_rank);
        }
        set_state(comm, comm.aborted ? ncclInternalError : ncclSuccess, "");
    } catch (const std::exception& e) {
        set_state(comm, ncclSystemError, e.what());
    }
}

ncclResult_t told(ncclResult_t result, const std::string& message) {
    const std::lock_guard lock(registry().mutex);
    registry().message = message;
    std::fprintf(stderr, "emulation: NCCL: %s\n", message.c_str());
    return result;
}

ncclResult_t initialize(const char* function, ncclComm_t* handle, int ranks, ncclUniqueId unique,
                        int rank, bool blocking) {
    if (fails_now(function)) {
        return ncclSystemError;
    }
    UniqueId id;
    std::memcpy(&id, unique.internal, sizeof id);
    if (handle == nullptr || ranks < 1 || rank < 0 || rank >= ranks || id.mark != id_mark) {
        return told(ncclInvalidArgument, "a communicator of no such rank, size or id");
    }
    auto made = std::make_unique<ncclComm>();
    ncclComm& comm = *made;
    comm.rank = rank;
    comm.ranks = ranks;
    comm.device = current_device();
    comm.blocking = blocking;
    comm.tag = tag_of(id) + 1;
    Member self;
    try {
        require_mpi();
        self = self_of(comm);
    } catch (const std::exception& e) {
        return told(ncclUnhandledCudaError, e.what());
    }
    {
        const std::lock_guard lock(registry().mutex);
        registry().all.push_back(std::move(made));
    }
    count("communicators.created");
    *handle = &comm;
    if (!blocking) {
        std::thread([&comm, id, self] { begin(comm, id, self); }).detach();
        return ncclInProgress;
    }
    begin(comm, id, self);
    return comm.state == ncclSuccess ? ncclSuccess : told(comm.state, comm.message);
}

// What polls find: deferred calls are enqueued at the second poll.
ncclResult_t polled(ncclComm& comm) {
    if (comm.deferred && ++comm.polls >= 2) {
        const ncclResult_t outcome = comm.deferred();
        comm.deferred = nullptr;
        // A failure that came meanwhile stays.
        comm.state =
            comm.state == ncclInProgress || comm.state == ncclSuccess ? outcome : comm.state;
    }
    if (comm.state == ncclSuccess && comm.finalized && comm.completed < comm.submitted) {
        return ncclInProgress;
    }
    return comm.state;
}

bool is_failed(int device) {
    const Lock lock(engine().mutex);
    return usable(engine(), device) != cudaSuccess;
}

bool is_allocated(const void* data, std::size_t bytes) {
    Engine& the = engine();
    const Lock lock(the.mutex);
    const Allocation* allocation = find_allocation(the, data);
    return allocation != nullptr &&
           bytes <= allocation->bytes -
                        static_cast<std::size_t>(static_cast<const char*>(data) - allocation->data);
}

// Waits until all that was issued is over, the communicator is given up or its device failed.
void flush(ncclComm& comm) {
    for (;;) {
        {
            const std::lock_guard lock(comm.mutex);
            if (comm.completed >= comm.submitted || comm.aborted || comm.state > ncclSuccess ||
                is_failed(comm.device)) {
                return;
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

} // namespace

namespace foregather::emulation {

ncclComm* find_communicator(ncclComm_t handle, const char* function) {
    const std::lock_guard lock(registry().mutex);
    for (const auto& comm : registry().all) {
        if (comm.get() == handle && !comm->destroyed) {
            return handle;
        }
    }
    report("HANDLE", std::string(function) + " is given a communicator that does not exist");
    return nullptr;
}

} // namespace foregather::emulation

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return fails_now(__func__) ? ncclSystemError : ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    static constexpr const char* text[] = {"no error",
                                           "unhandled cuda error",
                                           "unhandled system error",
                                           "internal error",
                                           "invalid argument",
                                           "invalid usage",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? text[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t handle) {
    thread_local std::string message;
    const std::lock_guard lock(registry().mutex);
    message = registry().message;
    if (handle != nullptr) {
        const std::lock_guard of(handle->mutex);
        message = handle->message.empty() ? message : handle->message;
    }
    return message.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* unique) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    static std::atomic<int> next{0};
    try {
        require_mpi();
        const UniqueId id{id_mark, mpi_rank(), next++};
        *unique = {};
        std::memcpy(unique->internal, &id, sizeof id);
        return ncclSuccess;
    } catch (const std::exception& e) {
        return told(ncclSystemError, e.what());
    }
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return initialize(__func__, comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (config != nullptr && config->magic != 0xcafebeef) {
        return told(ncclInvalidArgument, "a configuration that was not initialized");
    }
    if (config != nullptr && config->commName != nullptr) {
        count(std::string("communicators.named.") + config->commName);
    }
    return initialize(__func__, comm, ranks, id, rank, config == nullptr || config->blocking != 0);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr) {
        return ncclInvalidArgument;
    }
    const std::lock_guard lock(comm->mutex);
    *error = polled(*comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr) {
        return ncclInvalidArgument;
    }
    {
        const std::lock_guard lock(comm->mutex);
        if (comm->finalized || comm->deferred || comm->state != ncclSuccess) {
            return ncclInvalidUsage;
        }
        comm->finalized = true;
    }
    if (!comm->blocking) {
        return ncclInProgress;
    }
    flush(*comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr) {
        return ncclInvalidArgument;
    }
    flush(*comm);
    const std::lock_guard lock(comm->mutex);
    if (!comm->windows.empty()) {
        report("WINDOW", "ncclCommDestroy of a communicator with windows still registered");
    }
    comm->destroyed = true;
    count("communicators.destroyed");
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr) {
        return ncclInvalidArgument;
    }
    comm->aborted = true;
    const std::lock_guard lock(comm->mutex);
    if (comm->deferred) {
        unblock(comm->deferred_stream);
        comm->deferred = nullptr;
    }
    comm->destroyed = true;
    count("communicators.aborted");
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* ranks) {
    *ranks = comm->ranks;
    return fails_now(__func__) ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return fails_now(__func__) ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    *device = comm->device;
    return fails_now(__func__) ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** address, std::size_t bytes) {
    return !fails_now(__func__) && allocate_device(address, bytes, granularity) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
    return !fails_now(__func__) && free_device(address, __func__) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0 ||
        reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
        return ncclInvalidArgument;
    }
    if (!is_allocated(data, bytes)) {
        return ncclInvalidArgument;
    }
    const std::lock_guard lock(comm->mutex);
    *window = static_cast<ncclWindow_t>(data);
    comm->windows.push_back(*window);
    count("windows.registered");
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, __func__);
    if (comm == nullptr) {
        return ncclInvalidArgument;
    }
    const std::lock_guard lock(comm->mutex);
    return std::erase(comm->windows, window) > 0 ? ncclSuccess : ncclInvalidArgument;
}

} // extern "C"
