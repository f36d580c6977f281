// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions and kernels of the test double of the CUDA runtime, behind the
// real symbols. It decides what these calls mean; the engine runs and checks. Tests only.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "call.hpp"

using namespace foregather::emulation;

namespace {

std::shared_ptr<Event> find_event(Engine& the, cudaEvent_t handle, const char* function) {
    const auto found = the.events.find(handle);
    if (found == the.events.end()) {
        report("HANDLE", std::string(function) + " is given an event that does not exist");
        return nullptr;
    }
    return found->second;
}

template <typename Body>
cudaError_t call_on_event(const char* function, cudaEvent_t handle, Body body) {
    return call_on_device(function, cudaErrorUnknown, [&](Engine& the, Lock& lock) {
        const auto event = find_event(the, handle, function);
        if (!event) {
            return cudaErrorInvalidResourceHandle;
        }
        const cudaError_t error = usable(the, event->device);
        return error == cudaSuccess ? body(the, lock, *event) : error;
    });
}

// A handle that no later stream or event gets again, so that stale ones are found.
template <typename Handle>
Handle new_handle() {
    static std::atomic<std::uintptr_t> next{0x1000};
    return reinterpret_cast<Handle>(next += 16);
}

cudaError_t ask(Engine& the, const Stream& stream) {
    if (stream.completed < stream.submitted) {
        return cudaErrorNotReady;
    }
    join(the.host, stream.clock);
    return cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    return call_on_device(__func__, cudaErrorMemoryAllocation, [&](Engine& the, Lock&) {
        if (flags != cudaStreamNonBlocking) {
            not_modelled("a stream that synchronizes with the legacy default stream");
            return cudaErrorNotSupported;
        }
        *stream = new_handle<cudaStream_t>();
        the.streams[*stream] = make_stream(the, current_device(), priority);
        count("streams.created");
        return cudaSuccess;
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return call_on_stream(__func__, cudaErrorUnknown, handle,
                          [&](Engine& the, Lock&, Stream& stream) {
                              stream.closing = true; // its work is still done
                              the.streams.erase(handle);
                              the.changed.notify_all();
                              count("streams.destroyed");
                              return cudaSuccess;
                          });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return call_on_stream(
        __func__, cudaErrorUnknown, handle,
        [&](Engine& the, Lock& lock, Stream& stream) { return drain(lock, the, stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    return call_on_stream(__func__, cudaErrorUnknown, handle,
                          [&](Engine& the, Lock&, Stream& stream) { return ask(the, stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags) {
    return call_on_stream(
        __func__, cudaErrorUnknown, handle, [&](Engine& the, Lock&, Stream& stream) {
            const auto found = find_event(the, event, "cudaStreamWaitEvent");
            if (!found) {
                return cudaErrorInvalidResourceHandle;
            }
            if (flags != cudaEventWaitDefault) {
                not_modelled("cudaStreamWaitEvent with flags");
                return cudaErrorNotSupported;
            }
            if (found->last) { // one that was never recorded counts as done
                join(stream.clock, found->last->clock);
                push(the, stream, {"cudaStreamWaitEvent", nullptr, found->last, nullptr});
            }
            return cudaSuccess;
        });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return call_on_device(__func__, cudaErrorMemoryAllocation, [&](Engine& the, Lock&) {
        if ((flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
            not_modelled("events between processes");
            return cudaErrorNotSupported;
        }
        *event = new_handle<cudaEvent_t>();
        auto made = std::make_shared<Event>();
        made->device = current_device();
        made->timed = (flags & cudaEventDisableTiming) == 0;
        the.events[*event] = std::move(made);
        count("events.created");
        return cudaSuccess;
    });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    return call_on_event(__func__, handle, [&](Engine& the, Lock&, Event&) {
        the.events.erase(handle); // its recordings are still done
        count("events.destroyed");
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    return call_on_stream(__func__, cudaErrorUnknown, stream, [&](Engine& the, Lock&, Stream& on) {
        const auto event = find_event(the, handle, "cudaEventRecord");
        if (!event || event->device != on.device) {
            return cudaErrorInvalidResourceHandle;
        }
        event->last = std::make_shared<Recording>();
        event->last->clock = on.clock;
        join(event->last->clock, the.host);
        push(the, on, {"cudaEventRecord", nullptr, nullptr, event->last});
        return cudaSuccess;
    });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    return call_on_event(__func__, handle, [&](Engine& the, Lock&, Event& event) {
        if (event.last && !event.last->done) {
            return cudaErrorNotReady;
        }
        if (event.last) {
            join(the.host, event.last->clock);
        }
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    return call_on_event(__func__, handle, [&](Engine& the, Lock& lock, Event& event) {
        const auto recording = event.last; // a later one is not waited for
        if (!recording) {
            return cudaSuccess;
        }
        const auto failure = [&] { return usable(the, event.device); };
        the.changed.wait(lock, [&] { return recording->done || failure() != cudaSuccess; });
        if (failure() == cudaSuccess) {
            join(the.host, recording->clock);
        }
        return failure();
    });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    return call_on_event(__func__, start, [&](Engine& the, Lock&, Event& first) {
        const auto second = find_event(the, end, "cudaEventElapsedTime");
        if (!second || !first.timed || !second->timed || !first.last || !second->last ||
            first.device != second->device) {
            return cudaErrorInvalidResourceHandle;
        }
        if (!first.last->done || !second->last->done) {
            return cudaErrorNotReady;
        }
        const std::chrono::duration<float, std::milli> span = second->last->time - first.last->time;
        if (span.count() < 0) {
            report("NEGATIVE_SPAN", "cudaEventElapsedTime from a later event to an earlier one");
            return cudaErrorInvalidValue;
        }
        *ms = span.count();
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
    return call_on_stream(
        __func__, cudaErrorUnknown, handle, [&](Engine& the, Lock&, Stream& stream) {
            return submit(the, stream, "host function", {}, [=] { function(data); });
        });
}

cudaError_t cudaDeviceSynchronize() {
    return call_on_device(__func__, cudaErrorUnknown, [&](Engine& the, Lock& lock) {
        std::vector<std::shared_ptr<Stream>> all;
        for (const auto& [handle, stream] : the.streams) {
            if (stream->device == current_device()) {
                all.push_back(stream);
            }
        }
        if (const auto& legacy = the.devices[static_cast<std::size_t>(current_device())].legacy) {
            all.push_back(legacy);
        }
        for (const auto& stream : all) {
            if (const cudaError_t error = drain(lock, the, *stream); error != cudaSuccess) {
                return error;
            }
        }
        return cudaSuccess;
    });
}

} // extern "C"

namespace foregather::emulation {

cudaError_t enqueue_kernel(const std::string& name, cudaStream_t handle, std::vector<Touch> touches,
                           std::function<void()> body) {
    if (fails_now(name)) {
        return remembered(cudaErrorLaunchOutOfResources);
    }
    const bool faulty = fails_now("kernel_fault");
    return call_on_stream("cudaLaunchKernelExC", cudaErrorLaunchOutOfResources, handle,
                          [&](Engine& the, Lock&, Stream& stream) {
                              if (stream.device != current_device()) {
                                  return cudaErrorInvalidResourceHandle;
                              }
                              count("kernels");
                              count("kernel." + name);
                              if (faulty) {
                                  body = [] {
                                      throw std::runtime_error("a fault that the test asked for");
                                  };
                              }
                              return submit(the, stream, name, touches, std::move(body));
                          });
}

} // namespace foregather::emulation
