// SPDX-License-Identifier: Apache-2.0
// Collectives of the test double of NCCL, behind the real symbols: all-gather, reduce-scatter and
// all-reduce, sums in the order of ranks. Calls on one communicator run one after another whatever
// their streams. Tests only.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

#include <cuda_bf16.h>

#include "call.hpp"
#include "control.hpp"
#include "nccl_calls.hpp"

using namespace foregather::emulation;

namespace {

enum class Kind : int { all_gather, reduce_scatter, all_reduce };

constexpr const char* names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};
constexpr std::uint64_t defer_each = 5; // so often a non-blocking call is in progress at first

struct Collective {
    Kind kind = Kind::all_gather;
    const char* send = nullptr;
    char* receive = nullptr;
    std::size_t count = 0; // as the call's: of the send of a gather, of the result of reductions
    ncclDataType_t type = ncclFloat;
    std::uint64_t sequence = 0; // on its communicator, from 1
    std::int64_t number = 0;    // in this process, from 1
};

thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group;

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

// Sums parts that lie one after another, in their order; those of bfloats are rounded once.
template <typename Stored, typename Sum>
void add(const std::vector<std::vector<char>>& parts, std::size_t count, char* result) {
    for (std::size_t i = 0; i < count; ++i) {
        Sum sum{};
        for (std::size_t part = 0; part < parts.size(); ++part) {
            Stored value;
            std::memcpy(&value, parts[part].data() + i * sizeof(Stored), sizeof value);
            sum = part == 0 ? static_cast<Sum>(value) : sum + static_cast<Sum>(value);
        }
        const Stored stored = static_cast<Stored>(sum);
        std::memcpy(result + i * sizeof(Stored), &stored, sizeof stored);
    }
}

void add(ncclDataType_t type, const std::vector<std::vector<char>>& parts, std::size_t count,
         char* result) {
    if (type == ncclFloat) {
        add<float, float>(parts, count, result);
    } else if (type == ncclDouble) {
        add<double, double>(parts, count, result);
    } else {
        add<__nv_bfloat16, float>(parts, count, result);
    }
}

// Bytes that each rank sends to each other one, and where in the send buffer they are.
std::size_t part_bytes(const Collective& c) { return c.count * size_of(c.type); }
std::size_t part_offset(const Collective& c, std::size_t to) {
    return c.kind == Kind::reduce_scatter ? to * part_bytes(c) : 0;
}

struct Header {
    Kind kind = Kind::all_gather;
    ncclDataType_t type = ncclFloat;
    std::uint64_t bytes = 0;
    std::uint64_t sequence = 0;

    bool operator==(const Header&) const = default;
};

// The part of each rank, in the order of ranks; empty if given up.
std::vector<std::vector<char>> parts_of(ncclComm& comm, const Collective& c, bool headers) {
    const Header header{c.kind, c.type, part_bytes(c), c.sequence};
    std::vector<Message> sends;
    std::vector<Message> receives;
    const auto own = static_cast<std::size_t>(comm.rank);
    const std::size_t bytes = headers ? sizeof header : part_bytes(c);
    const auto outgoing = [&](std::size_t to) {
        const char* begin =
            headers ? reinterpret_cast<const char*>(&header) : c.send + part_offset(c, to);
        return std::vector<char>(begin, begin + bytes);
    };
    for (std::size_t r = 0; r < comm.world_ranks.size(); ++r) {
        if (r != own) {
            sends.push_back({comm.world_ranks[r], outgoing(r)});
            receives.push_back({comm.world_ranks[r], std::vector<char>(bytes)});
        }
    }
    if (!exchange(sends, receives, comm.tag, comm.aborted)) {
        return {};
    }
    std::vector<std::vector<char>> parts;
    for (std::size_t r = 0; r < comm.world_ranks.size(); ++r) {
        parts.push_back(r == own ? outgoing(own) : std::move(receives[r < own ? r : r - 1].bytes));
    }
    return parts;
}

// False if the communicator was given up. Throws if the ranks do not call the same.
bool run(ncclComm& comm, const Collective& c) {
    const Header own{c.kind, c.type, part_bytes(c), c.sequence};
    const auto headers = parts_of(comm, c, true);
    for (std::size_t r = 0; r < headers.size(); ++r) {
        Header theirs;
        std::memcpy(&theirs, headers[r].data(), sizeof theirs);
        if (!(theirs == own)) {
            throw std::runtime_error("rank " + std::to_string(r) +
                                     " calls another collective than rank " +
                                     std::to_string(comm.rank));
        }
    }
    const auto parts = headers.empty() ? headers : parts_of(comm, c, false);
    if (parts.empty()) {
        return false;
    }
    if (c.kind == Kind::all_gather) {
        for (std::size_t r = 0; r < parts.size(); ++r) {
            std::copy(parts[r].begin(), parts[r].end(), c.receive + r * part_bytes(c));
        }
    } else {
        add(c.type, parts, c.count, c.receive);
    }
    return true;
}

bool is_number(const char* setting, std::int64_t number) {
    return ranked_setting(setting) == std::optional(number);
}

// On the stream's worker.
void perform(ncclComm& comm, const Collective& c) {
    const bool hangs = is_number("FOREGATHER_EMULATION_NCCL_HANG", c.number);
    for (;;) {
        {
            const std::lock_guard lock(comm.mutex);
            if (comm.aborted || (!hangs && comm.completed + 1 == c.sequence)) {
                break;
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    std::string failure;
    try {
        if (!comm.aborted) {
            run(comm, c);
        }
    } catch (const std::exception& e) {
        failure = e.what();
        report("COLLECTIVE", std::string(names[static_cast<int>(c.kind)]) + ": " + failure);
    }
    const std::lock_guard lock(comm.mutex);
    ++comm.completed;
    if (!failure.empty()) {
        comm.state = ncclInternalError;
        comm.message = failure;
    } else if (is_number("FOREGATHER_EMULATION_NCCL_ASYNC_ERROR", c.number)) {
        comm.state = ncclRemoteError;
        comm.message = "a peer is gone, as the test asked for";
    }
}

std::vector<Touch> touches_of(const ncclComm& comm, const Collective& c) {
    const auto ranks = static_cast<std::size_t>(comm.ranks);
    const std::size_t bytes = part_bytes(c);
    return {{c.send, bytes * (c.kind == Kind::reduce_scatter ? ranks : 1), false},
            {c.receive, bytes * (c.kind == Kind::all_gather ? ranks : 1), true}};
}

// In place is where NCCL says, or not at all.
bool overlaps_wrongly(const ncclComm& comm, const Collective& c) {
    const auto touches = touches_of(comm, c);
    const char* end = c.send + touches[0].bytes;
    if (end <= c.receive || c.receive + touches[1].bytes <= c.send) {
        return false;
    }
    const std::size_t own = static_cast<std::size_t>(comm.rank) * part_bytes(c);
    return c.kind == Kind::all_gather       ? c.send != c.receive + own
           : c.kind == Kind::reduce_scatter ? c.receive != c.send + own
                                            : c.receive != c.send;
}

ncclResult_t submit_collective(ncclComm& comm, Collective c, cudaStream_t stream) {
    const char* name = names[static_cast<int>(c.kind)];
    const cudaError_t error =
        submit_on(stream, name, touches_of(comm, c), [&comm, c] { perform(comm, c); });
    if (error != cudaSuccess) {
        comm.message = cudaGetErrorString(error);
        return ncclUnhandledCudaError;
    }
    count("collectives");
    count(std::string("bytes.") + name, static_cast<std::int64_t>(touches_of(comm, c)[1].bytes));
    return ncclSuccess;
}

void block(cudaStream_t handle, const char* name) {
    Engine& the = engine();
    const Lock lock(the.mutex);
    const auto found = the.streams.find(handle);
    if (found != the.streams.end()) {
        found->second->blocked_by = name;
    }
}

bool is_deferred(const ncclComm& comm) {
    const auto each = static_cast<std::uint64_t>(
        setting("FOREGATHER_EMULATION_NCCL_IN_PROGRESS", static_cast<std::int64_t>(defer_each)));
    return !comm.blocking && each > 0 && (comm.calls - 1) % each == 0;
}

ncclResult_t enqueue(ncclComm& comm, Collective c, cudaStream_t stream) {
    const std::lock_guard lock(comm.mutex);
    if (comm.finalized || comm.deferred || comm.state != ncclSuccess) {
        comm.message = "a collective on a communicator that is not ready, is finalized or failed";
        return comm.state > ncclSuccess && comm.state < ncclInProgress ? comm.state
                                                                       : ncclInvalidUsage;
    }
    if (overlaps_wrongly(comm, c)) {
        report("COLLECTIVE", std::string(names[static_cast<int>(c.kind)]) +
                                 " has buffers that overlap and are not in place");
        return ncclInvalidArgument;
    }
    c.sequence = ++comm.submitted;
    count("collectives.called");
    c.number = counted("collectives.called");
    ++comm.calls;
    if (!is_deferred(comm)) {
        const ncclResult_t result = submit_collective(comm, c, stream);
        comm.submitted -= result == ncclSuccess ? 0 : 1;
        return result;
    }
    count("collectives.in_progress_at_first");
    block(stream, names[static_cast<int>(c.kind)]);
    comm.deferred_stream = stream;
    comm.polls = 0;
    comm.state = ncclInProgress;
    comm.deferred = [&comm, c, stream] {
        unblock(stream);
        return submit_collective(comm, c, stream);
    };
    return ncclInProgress;
}

// The call, at once or when the group ends.
ncclResult_t call(ncclComm_t handle, const Collective& c, ncclRedOp_t op, cudaStream_t stream) {
    const char* name = names[static_cast<int>(c.kind)];
    if (fails_now(name)) {
        return ncclSystemError;
    }
    ncclComm* comm = find_communicator(handle, name);
    if (comm == nullptr || c.send == nullptr || c.receive == nullptr || size_of(c.type) == 0) {
        return ncclInvalidArgument;
    }
    const bool sums = c.kind != Kind::all_gather;
    if (sums && (op != ncclSum ||
                 (c.type != ncclFloat && c.type != ncclDouble && c.type != ncclBfloat16))) {
        not_modelled(std::string(name) + " of other than sums of float, double and bfloat16");
        return ncclInvalidUsage;
    }
    if (group_depth > 0) {
        group.push_back([comm, c, stream] { return enqueue(*comm, c, stream); });
        return ncclSuccess;
    }
    return enqueue(*comm, c, stream);
}

} // namespace

namespace foregather::emulation {

void unblock(cudaStream_t handle) {
    Engine& the = engine();
    const Lock lock(the.mutex);
    const auto found = the.streams.find(handle);
    if (found != the.streams.end()) {
        found->second->blocked_by.clear();
    }
}

} // namespace foregather::emulation

extern "C" {

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(comm,
                {Kind::all_gather, static_cast<const char*>(send), static_cast<char*>(receive),
                 count, type, 0, 0},
                ncclSum, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    return call(comm,
                {Kind::reduce_scatter, static_cast<const char*>(send), static_cast<char*>(receive),
                 count, type, 0, 0},
                op, stream);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call(comm,
                {Kind::all_reduce, static_cast<const char*>(send), static_cast<char*>(receive),
                 count, type, 0, 0},
                op, stream);
}

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return fails_now(__func__) ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) {
        return ncclInvalidUsage;
    }
    if (fails_now(__func__)) {
        return ncclSystemError;
    }
    if (--group_depth > 0) {
        return ncclSuccess;
    }
    ncclResult_t worst = ncclSuccess;
    for (const auto& each : std::exchange(group, {})) {
        const ncclResult_t result = each();
        if (worst == ncclSuccess || (worst == ncclInProgress && result != ncclSuccess)) {
            worst = result;
        }
    }
    return worst;
}

} // extern "C"
