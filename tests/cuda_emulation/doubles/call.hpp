// SPDX-License-Identifier: Apache-2.0
// How each function of the test double of the CUDA runtime begins and ends: counted, made to fail
// if a test wants it, refused on a failed device, its error remembered. Tests only.
#pragma once

#include <utility>

#include "engine.hpp"
#include "ledger.hpp"

namespace foregather::emulation {

// Remembers an error for cudaGetLastError and returns it.
cudaError_t remembered(cudaError_t error);

// A call that needs no device. `injected` is what it returns where a test makes it fail.
template <typename Body>
cudaError_t call_anywhere(const char* function, cudaError_t injected, Body body) {
    if (fails_now(function)) {
        return remembered(injected);
    }
    Engine& the = engine();
    Lock lock(the.mutex);
    return remembered(body(the, lock));
}

// A call that needs the thread's device, which must not have failed.
template <typename Body>
cudaError_t call_on_device(const char* function, cudaError_t injected, Body body) {
    return call_anywhere(function, injected, [&](Engine& the, Lock& lock) {
        const cudaError_t error = usable(the, current_device());
        return error == cudaSuccess ? body(the, lock) : error;
    });
}

// A call on a stream of the thread.
template <typename Body>
cudaError_t call_on_stream(const char* function, cudaError_t injected, cudaStream_t handle,
                           Body body) {
    return call_on_device(function, injected, [&](Engine& the, Lock& lock) {
        const auto stream = find_stream(the, handle, function);
        if (!stream) {
            return handle == cudaStreamPerThread ? cudaErrorNotSupported
                                                 : cudaErrorInvalidResourceHandle;
        }
        const cudaError_t error = usable(the, stream->device);
        return error == cudaSuccess ? body(the, lock, *stream) : error;
    });
}

// Fresh device memory for the thread's device, and back; errors as cudaMalloc and cudaFree have.
cudaError_t allocate_device(void** address, std::size_t bytes, std::size_t alignment);
cudaError_t free_device(void* address, const char* function);

// For the libraries above the runtime: submits an operation of theirs on a stream of the thread's
// device.
inline cudaError_t submit_on(cudaStream_t handle, const std::string& name,
                             const std::vector<Touch>& touches, std::function<void()> body) {
    Engine& the = engine();
    const Lock lock(the.mutex);
    if (const cudaError_t error = usable(the, current_device()); error != cudaSuccess) {
        return error;
    }
    const auto stream = find_stream(the, handle, name.c_str());
    if (!stream || stream->device != current_device()) {
        return cudaErrorInvalidResourceHandle;
    }
    return submit(the, *stream, name, touches, std::move(body));
}

} // namespace foregather::emulation
