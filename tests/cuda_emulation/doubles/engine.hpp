// SPDX-License-Identifier: Apache-2.0
// Devices, memory, streams and events of the test double of the CUDA runtime: workers that run
// operations in stream order, and the checker that sees each of them when it is enqueued. It
// decides what an operation may touch; what operations there are, its callers decide. Tests only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "../emulation.hpp"
#include "order.hpp"

namespace foregather::emulation {

using Lock = std::unique_lock<std::mutex>;

enum class Place { device, pinned };

struct Allocation {
    char* data = nullptr;
    std::size_t bytes = 0;
    Place place = Place::device;
    int device = 0;
    AccessMap accesses;
    std::map<std::size_t, std::pair<std::size_t, std::string>> names; // offset: (bytes, name)
};

// One cudaEventRecord: the event may be recorded anew while others still wait for this.
struct Recording {
    bool done = false;
    std::chrono::steady_clock::time_point time;
    Clock clock;
};

struct Event {
    int device = 0;
    bool timed = true;
    std::shared_ptr<Recording> last;
};

struct Work {
    std::string name;
    std::function<void()> body;             // or
    std::shared_ptr<Recording> waits_for;   // or
    std::shared_ptr<Recording> records_for; // one of the three
};

struct Stream {
    std::size_t agent = 0;
    int device = 0;
    int priority = 0;
    std::string label;
    Clock clock;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::deque<Work> queue;
    bool closing = false;
    std::string blocked_by; // a call whose operation is still to be put here, else ""
    std::mt19937_64 random;
};

struct Device {
    int physical = 0;
    cudaError_t failure = cudaSuccess; // sticky
    std::size_t used = 0;
    std::shared_ptr<Stream> legacy; // the default stream, made at its first use
};

struct Engine {
    std::mutex mutex; // guards all below
    std::condition_variable changed;
    bool driver = true;
    std::vector<Device> devices;
    std::size_t memory_per_device = 0;
    std::map<std::uintptr_t, Allocation> memory; // by address
    std::deque<std::pair<std::uintptr_t, std::size_t>> freed;
    std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
    std::map<cudaEvent_t, std::shared_ptr<Event>> events;
    std::size_t agents = 0;
    Clock host; // what the host knows to be over
};

// Never destroyed: workers may outlive main().
Engine& engine();

// The device that the calling thread has chosen.
int& current_device();

// Success, or why no device can be used: no driver, none here, none of that number, or failed.
cudaError_t usable(const Engine& engine, int device);

// The stream of a handle; null after a report if it is unknown. The default stream is reported.
std::shared_ptr<Stream> find_stream(Engine& engine, cudaStream_t handle, const char* function);

std::shared_ptr<Stream> make_stream(Engine& engine, int device, int priority);

// Puts work on the stream; the checker does not look at it.
void push(Engine& engine, Stream& stream, Work work);

// Checks what the operation touches against all others, and puts it on the stream. Memory that
// may not be touched fails the device: cudaErrorIllegalAddress.
cudaError_t submit(Engine& engine, Stream& stream, const std::string& name,
                   const std::vector<Touch>& touches, std::function<void()> body);

// Waits until the stream has done all that was submitted, and lets the host know of it. Returns
// the failure of the device.
cudaError_t drain(Lock& lock, Engine& engine, Stream& stream);

// Makes the failure of the device sticky, and tells it once.
void fail_device(Engine& engine, int device, cudaError_t error, const std::string& why);

// Memory: the allocation that holds the address, or null.
Allocation* find_allocation(Engine& engine, const void* address);
std::string describe(const Allocation& allocation, std::size_t begin, std::size_t end);

} // namespace foregather::emulation
