// SPDX-License-Identifier: Apache-2.0
// Memory and copies of the test double of the CUDA runtime, behind the real symbols: what is
// fresh is NaN, and host memory that changes under a copy is found. Tests only.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "call.hpp"
#include "control.hpp"

using namespace foregather::emulation;

namespace {

constexpr std::size_t alignment = 512; // cudaMalloc promises 256 at least
constexpr std::size_t freed_remembered = 4096;
constexpr int fresh = 0xFF; // as fp32, bf16 and fp64 a NaN

cudaError_t allocate(Engine& the, void** address, std::size_t bytes, Place place,
                     std::size_t aligned = alignment) {
    *address = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    Device& device = the.devices[static_cast<std::size_t>(current_device())];
    if (place == Place::device && bytes > the.memory_per_device - device.used) {
        return cudaErrorMemoryAllocation;
    }
    void* data = nullptr;
    if (::posix_memalign(&data, aligned, bytes) != 0) {
        return cudaErrorMemoryAllocation;
    }
    std::memset(data, fresh, bytes);
    if (place == Place::device) {
        device.used += bytes;
        peak("memory.peak", static_cast<std::int64_t>(device.used));
    }
    Allocation made;
    made.data = static_cast<char*>(data);
    made.bytes = bytes;
    made.place = place;
    made.device = current_device();
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    std::erase_if(the.freed,
                  [&](const auto& f) { return f.first < at + bytes && at < f.first + f.second; });
    the.memory.emplace(at, std::move(made));
    count(place == Place::device ? "allocations.device" : "allocations.pinned");
    if (counted("kernels") > 0) {
        count("allocations.after_first_kernel");
    }
    *address = data;
    return cudaSuccess;
}

cudaError_t release(Lock& lock, Engine& the, void* address, Place place, const char* function) {
    if (address == nullptr) {
        return cudaSuccess;
    }
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto found = the.memory.find(at);
    if (found == the.memory.end() || found->second.place != place) {
        report("BAD_FREE", std::string(function) + " of what is not such an allocation");
        return cudaErrorInvalidValue;
    }
    if (const auto user = found->second.accesses.pending(0, found->second.bytes, the.host)) {
        report("FREE_IN_USE", std::string(function) + " of " +
                                  describe(found->second, 0, found->second.bytes) + " while " +
                                  user->name + " (" + user->stream + ") may still use it");
        for (const auto& [handle, stream] : std::map(the.streams)) {
            if (const cudaError_t error = drain(lock, the, *stream); error != cudaSuccess) {
                return error;
            }
        }
    }
    const auto freed = the.memory.extract(at);
    if (place == Place::device) {
        the.devices[static_cast<std::size_t>(freed.mapped().device)].used -= freed.mapped().bytes;
    }
    the.freed.emplace_back(at, freed.mapped().bytes);
    if (the.freed.size() > freed_remembered) {
        the.freed.pop_front();
    }
    std::free(address);
    count(place == Place::device ? "frees.device" : "frees.pinned");
    return cudaSuccess;
}

std::size_t hash(const void* data, std::size_t bytes) {
    return std::hash<std::string_view>{}({static_cast<const char*>(data), bytes});
}

bool is_pending(Engine& the, const void* data, std::size_t bytes) {
    const Allocation* allocation = find_allocation(the, data);
    const auto begin = static_cast<std::size_t>(static_cast<const char*>(data) - allocation->data);
    return allocation->accesses.pending(begin, begin + bytes, the.host) != nullptr;
}

bool is_all(int value, const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const unsigned char*>(data);
    return std::all_of(begin, begin + bytes, [&](unsigned char c) { return c == value; });
}

struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
    cudaMemcpyKind kind = cudaMemcpyDefault;
};

bool is_on_device(Engine& the, const void* data) {
    const Allocation* allocation = find_allocation(the, data);
    return allocation != nullptr && allocation->place == Place::device;
}

// The kind that the places tell, or cudaMemcpyHostToHost.
cudaMemcpyKind kind_of(Engine& the, const Copy& copy) {
    const bool to = is_on_device(the, copy.to);
    const bool from = is_on_device(the, copy.from);
    return to && from ? cudaMemcpyDeviceToDevice
           : to       ? cudaMemcpyHostToDevice
           : from     ? cudaMemcpyDeviceToHost
                      : cudaMemcpyHostToHost;
}

// From and to memory that the host may change: what it holds now is what must be there later. A
// range that earlier operations still use cannot be judged by its bytes.
std::function<void()> guarded_body(Engine& the, const Copy& copy) {
    const auto move = [copy] { std::memcpy(copy.to, copy.from, copy.bytes); };
    if (copy.kind == cudaMemcpyHostToDevice && !is_pending(the, copy.from, copy.bytes)) {
        return [copy, move, then = hash(copy.from, copy.bytes)] {
            if (hash(copy.from, copy.bytes) != then) {
                report("HOST_WRITE", "the host changed the source of a copy to the device before "
                                     "the copy was done");
            }
            move();
        };
    }
    if (copy.kind == cudaMemcpyDeviceToHost && !is_pending(the, copy.to, copy.bytes)) {
        std::memset(copy.to, fresh, copy.bytes); // whoever reads it early reads NaN
        return [copy, move] {
            if (!is_all(fresh, copy.to, copy.bytes)) {
                report("HOST_WRITE", "the host changed the destination of a copy from the device "
                                     "before the copy was done");
            }
            move();
        };
    }
    return move;
}

void count_copy(const Copy& copy) {
    const std::string direction = copy.kind == cudaMemcpyHostToDevice   ? "host_to_device"
                                  : copy.kind == cudaMemcpyDeviceToHost ? "device_to_host"
                                                                        : "device_to_device";
    count("copies." + direction);
    count("bytes." + direction, static_cast<std::int64_t>(copy.bytes));
}

cudaError_t submit_copy(Lock& lock, Engine& the, Stream& stream, Copy copy) {
    const cudaMemcpyKind real = kind_of(the, copy);
    if (copy.kind != cudaMemcpyDefault && copy.kind != real) {
        report("COPY_KIND", "cudaMemcpyAsync is given a kind that its addresses contradict, or "
                            "device memory that was freed");
        return cudaErrorInvalidValue;
    }
    if (real == cudaMemcpyHostToHost) {
        not_modelled("cudaMemcpyAsync from host to host");
        return cudaErrorNotSupported;
    }
    copy.kind = real;
    count_copy(copy);
    std::vector<Touch> touches;
    bool pageable = false;
    for (const Touch& touch : {Touch{copy.from, copy.bytes, false}, {copy.to, copy.bytes, true}}) {
        const bool known = find_allocation(the, touch.data) != nullptr;
        pageable = pageable || !known;
        if (known) {
            touches.push_back(touch);
        }
    }
    if (pageable) {
        report("PAGEABLE", "cudaMemcpyAsync on " + stream.label +
                               " uses host memory that is not pinned: it blocks the host");
    }
    const auto fits = [&](const void* data) {
        const Allocation* of = find_allocation(the, data);
        return of != nullptr &&
               copy.bytes <=
                   of->bytes - static_cast<std::size_t>(static_cast<const char*>(data) - of->data);
    };
    std::function<void()> body = [copy] { std::memcpy(copy.to, copy.from, copy.bytes); };
    if (fits(copy.from) && fits(copy.to)) {
        body = guarded_body(the, copy);
    }
    if (fails_now("copy_fault")) {
        body = [] { throw std::runtime_error("a fault that the test asked for"); };
    }
    const cudaError_t error = submit(the, stream, "cudaMemcpyAsync", touches, std::move(body));
    return error == cudaSuccess && pageable ? drain(lock, the, stream) : error;
}

cudaError_t submit_set(Engine& the, Stream& stream, const char* name, void* data, int value,
                       std::size_t bytes) {
    count("sets");
    return submit(the, stream, name, {{data, bytes, true}},
                  [=] { std::memset(data, value, bytes); });
}

} // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
    return call_on_device(__func__, cudaErrorMemoryAllocation, [&](Engine& the, Lock&) {
        return allocate(the, address, bytes, Place::device);
    });
}

cudaError_t cudaFree(void* address) {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine& the, Lock& lock) {
        return release(lock, the, address, Place::device, "cudaFree");
    });
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned int flags) {
    return call_on_device(__func__, cudaErrorMemoryAllocation, [&](Engine& the, Lock&) {
        if ((flags & ~(cudaHostAllocPortable | cudaHostAllocMapped)) != 0) {
            not_modelled("cudaHostAlloc of write-combined memory");
            return cudaErrorNotSupported;
        }
        return allocate(the, address, bytes, Place::pinned);
    });
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
    return call_on_device(__func__, cudaErrorMemoryAllocation, [&](Engine& the, Lock&) {
        return allocate(the, address, bytes, Place::pinned);
    });
}

cudaError_t cudaFreeHost(void* address) {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine& the, Lock& lock) {
        return release(lock, the, address, Place::pinned, "cudaFreeHost");
    });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine& the, Lock&) {
        *total = the.memory_per_device;
        *free = *total - the.devices[static_cast<std::size_t>(current_device())].used;
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
    return call_on_stream(
        __func__, cudaErrorInvalidValue, handle, [&](Engine& the, Lock& lock, Stream& stream) {
            return bytes == 0 ? cudaSuccess
                              : submit_copy(lock, the, stream, {to, from, bytes, kind});
        });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t handle) {
    return call_on_stream(__func__, cudaErrorInvalidValue, handle,
                          [&](Engine& the, Lock&, Stream& stream) {
                              return submit_set(the, stream, "cudaMemsetAsync", data, value, bytes);
                          });
}

// On the default stream, which streams that do not block do not wait for: reported as such.
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
    return call_on_stream(__func__, cudaErrorInvalidValue, nullptr,
                          [&](Engine& the, Lock&, Stream& stream) {
                              return submit_set(the, stream, "cudaMemset", data, value, bytes);
                          });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    return call_on_device(__func__, cudaErrorInvalidValue, [&](Engine& the, Lock&) {
        const Allocation* allocation = find_allocation(the, address);
        auto* data = const_cast<void*>(address);
        *attributes = {};
        attributes->type = allocation == nullptr                ? cudaMemoryTypeUnregistered
                           : allocation->place == Place::device ? cudaMemoryTypeDevice
                                                                : cudaMemoryTypeHost;
        attributes->device = allocation == nullptr ? -2 : allocation->device;
        attributes->devicePointer = allocation == nullptr ? nullptr : data;
        attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? nullptr : data;
        return cudaSuccess;
    });
}

} // extern "C"

namespace foregather::emulation {

cudaError_t allocate_device(void** address, std::size_t bytes, std::size_t aligned) {
    Engine& the = engine();
    const Lock lock(the.mutex);
    const cudaError_t error = usable(the, current_device());
    return error == cudaSuccess ? allocate(the, address, bytes, Place::device, aligned) : error;
}

cudaError_t free_device(void* address, const char* function) {
    Engine& the = engine();
    Lock lock(the.mutex);
    const cudaError_t error = usable(the, current_device());
    return error == cudaSuccess ? release(lock, the, address, Place::device, function) : error;
}

} // namespace foregather::emulation
