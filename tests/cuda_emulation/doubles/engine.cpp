// SPDX-License-Identifier: Apache-2.0
// Workers of streams and the checker's judgement at enqueue. It decides order and faults; copies,
// kernels and collectives arrive as bodies. Tests only.
#include "engine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <thread>

#include "control.hpp"
#include "ledger.hpp"

namespace foregather::emulation {
namespace {

// Visible devices in the order of CUDA_VISIBLE_DEVICES: it ends at the first invalid entry.
std::vector<Device> visible_devices(int present) {
    std::vector<Device> devices;
    const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
    if (chosen == nullptr) {
        for (int i = 0; i < present; ++i) {
            devices.push_back({i, cudaSuccess, 0, nullptr});
        }
        return devices;
    }
    std::istringstream text(chosen);
    for (std::string item; std::getline(text, item, ',');) {
        char* end = nullptr;
        const long index = std::strtol(item.c_str(), &end, 10);
        if (end == item.c_str() || *end != '\0' || index < 0 || index >= present) {
            break;
        }
        devices.push_back({static_cast<int>(index), cudaSuccess, 0, nullptr});
    }
    return devices;
}

void read_environment(Engine& engine) {
    const std::string present = setting("FOREGATHER_EMULATION_GPUS");
    engine.driver = present != "none";
    engine.devices.clear();
    if (engine.driver) {
        engine.devices = visible_devices(present.empty() ? 0 : std::stoi(present));
    }
    engine.memory_per_device =
        static_cast<std::size_t>(setting("FOREGATHER_EMULATION_MEMORY", std::int64_t{4} << 30));
}

void delay(Stream& stream) {
    const auto most = setting("FOREGATHER_EMULATION_DELAY_US", 0);
    if (most > 0) {
        const auto us = stream.random() % static_cast<std::uint64_t>(most + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
}

void perform(Lock& lock, Engine& engine, Stream& stream, const Work& work) {
    const auto failed = [&] {
        return engine.devices[static_cast<std::size_t>(stream.device)].failure != cudaSuccess;
    };
    if (work.waits_for) {
        engine.changed.wait(lock, [&] { return work.waits_for->done || failed(); });
    } else if (work.records_for) {
        work.records_for->time = std::chrono::steady_clock::now();
        work.records_for->done = true;
    } else if (!failed()) {
        lock.unlock();
        delay(stream);
        std::string fault;
        try {
            work.body();
        } catch (const std::exception& e) {
            fault = *e.what() == '\0' ? "a fault" : e.what();
        } catch (...) {
            fault = "a fault";
        }
        lock.lock();
        if (!fault.empty()) {
            fail_device(engine, stream.device, cudaErrorLaunchFailure, work.name + ": " + fault);
        }
    }
}

void serve(const std::shared_ptr<Stream>& stream) {
    Engine& the = engine();
    Lock lock(the.mutex);
    for (;;) {
        the.changed.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
        if (stream->queue.empty()) {
            return;
        }
        const Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        perform(lock, the, *stream, work);
        ++stream->completed;
        the.changed.notify_all();
    }
}

std::string freed_or_unknown(const Engine& engine, std::uintptr_t address) {
    for (const auto& [begin, bytes] : engine.freed) {
        if (begin <= address && address < begin + bytes) {
            return "memory that was freed";
        }
    }
    return "memory that was never allocated";
}

// "" if the operation may touch the range, else what is wrong.
std::string fault_of(Engine& engine, const Stream& stream, const Touch& touch) {
    const auto address = reinterpret_cast<std::uintptr_t>(touch.data);
    const Allocation* allocation = find_allocation(engine, touch.data);
    if (allocation == nullptr) {
        return freed_or_unknown(engine, address);
    }
    const auto begin = address - reinterpret_cast<std::uintptr_t>(allocation->data);
    if (touch.bytes > allocation->bytes - begin) {
        return std::to_string(begin + touch.bytes - allocation->bytes) + " bytes beyond " +
               describe(*allocation, begin, allocation->bytes);
    }
    if (allocation->place == Place::device && allocation->device != stream.device) {
        return "memory of device " + std::to_string(allocation->device);
    }
    return "";
}

std::string by(const Operation& operation) {
    return operation.name + "#" + std::to_string(operation.tick) + " (" + operation.stream + ")";
}

void note(Engine& engine, const Stream& stream, const Touch& touch,
          const OperationPointer& operation) {
    Allocation& allocation = *find_allocation(engine, touch.data);
    const auto begin = static_cast<std::size_t>(static_cast<const char*>(touch.data) -
                                                static_cast<const char*>(allocation.data));
    allocation.accesses.access(
        begin, begin + touch.bytes, touch.written, operation, stream.clock, engine.host,
        [&](const Operation& earlier, bool earlier_wrote) {
            report("RACE", by(*operation) + (touch.written ? " writes " : " reads ") +
                               describe(allocation, begin, begin + touch.bytes) +
                               " not ordered after " + by(earlier) + ", which " +
                               (earlier_wrote ? "writes it" : "reads it"));
        });
    peak("checker.intervals", static_cast<std::int64_t>(allocation.accesses.intervals()));
}

} // namespace

Engine& engine() {
    static Engine* const the = [] {
        auto* made = new Engine;
        read_environment(*made);
        return made;
    }();
    return *the;
}

int& current_device() {
    thread_local int device = 0;
    return device;
}

cudaError_t usable(const Engine& engine, int device) {
    if (!engine.driver) {
        return cudaErrorInsufficientDriver;
    }
    if (engine.devices.empty()) {
        return cudaErrorNoDevice;
    }
    if (device < 0 || static_cast<std::size_t>(device) >= engine.devices.size()) {
        return cudaErrorInvalidDevice;
    }
    return engine.devices[static_cast<std::size_t>(device)].failure;
}

std::shared_ptr<Stream> make_stream(Engine& engine, int device, int priority) {
    auto stream = std::make_shared<Stream>();
    stream->agent = engine.agents++;
    stream->device = device;
    stream->priority = priority;
    stream->label = "stream " + std::to_string(stream->agent);
    stream->random.seed(static_cast<std::uint64_t>(setting("FOREGATHER_EMULATION_SEED", 1)) *
                            1000003u +
                        static_cast<std::uint64_t>(world_rank()) * 1009u + stream->agent);
    std::thread(serve, stream).detach();
    return stream;
}

std::shared_ptr<Stream> find_stream(Engine& engine, cudaStream_t handle, const char* function) {
    if (handle == cudaStreamPerThread) {
        not_modelled(std::string(function) + " on cudaStreamPerThread");
        return nullptr;
    }
    if (handle == nullptr || handle == cudaStreamLegacy) {
        report("DEFAULT_STREAM", std::string(function) + " is given the legacy default stream");
        Device& device = engine.devices[static_cast<std::size_t>(current_device())];
        if (!device.legacy) {
            device.legacy = make_stream(engine, current_device(), 0);
            device.legacy->label = "default stream";
        }
        return device.legacy;
    }
    const auto found = engine.streams.find(handle);
    if (found == engine.streams.end()) {
        report("HANDLE", std::string(function) + " is given a stream that does not exist");
        return nullptr;
    }
    return found->second;
}

void push(Engine& engine, Stream& stream, Work work) {
    if (!stream.blocked_by.empty()) {
        report("IN_PROGRESS", (work.name.empty() ? "work" : work.name) + " is put on " +
                                  stream.label + " while " + stream.blocked_by +
                                  " is still in progress: it will run before it");
    }
    ++stream.submitted;
    stream.queue.push_back(std::move(work));
    engine.changed.notify_all();
}

cudaError_t submit(Engine& engine, Stream& stream, const std::string& name,
                   const std::vector<Touch>& touches, std::function<void()> body) {
    join(stream.clock, engine.host);
    stream.clock.resize(std::max(stream.clock.size(), stream.agent + 1), 0);
    const std::uint64_t tick = ++stream.clock[stream.agent];
    const auto operation =
        std::make_shared<const Operation>(Operation{name, stream.label, stream.agent, tick});
    for (const Touch& touch : touches) {
        if (touch.bytes == 0) {
            continue;
        }
        if (const std::string fault = fault_of(engine, stream, touch); !fault.empty()) {
            report("BAD_RANGE", by(*operation) + (touch.written ? " writes " : " reads ") + fault);
            fail_device(engine, stream.device, cudaErrorIllegalAddress, name + ": " + fault);
            return cudaErrorIllegalAddress;
        }
    }
    for (const Touch& touch : touches) {
        if (touch.bytes > 0) {
            note(engine, stream, touch, operation);
        }
    }
    push(engine, stream, {name, std::move(body), nullptr, nullptr});
    return cudaSuccess;
}

cudaError_t drain(Lock& lock, Engine& engine, Stream& stream) {
    const std::uint64_t until = stream.submitted;
    const Clock clock = stream.clock;
    const auto device = static_cast<std::size_t>(stream.device);
    engine.changed.wait(lock, [&] {
        return stream.completed >= until || engine.devices[device].failure != cudaSuccess;
    });
    if (engine.devices[device].failure == cudaSuccess) {
        join(engine.host, clock);
    }
    return engine.devices[device].failure;
}

void fail_device(Engine& engine, int device, cudaError_t error, const std::string& why) {
    Device& failed = engine.devices[static_cast<std::size_t>(device)];
    if (failed.failure == cudaSuccess) {
        failed.failure = error;
        count("device_failures");
        std::fprintf(stderr, "emulation: device %d fails: %s\n", device, why.c_str());
    }
    engine.changed.notify_all();
}

Allocation* find_allocation(Engine& engine, const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto next = engine.memory.upper_bound(at);
    if (next == engine.memory.begin()) {
        return nullptr;
    }
    auto& [begin, allocation] = *std::prev(next);
    return at - begin < allocation.bytes ? &allocation : nullptr;
}

std::string describe(const Allocation& allocation, std::size_t begin, std::size_t end) {
    const auto bytes = [&](std::size_t from) {
        return "[" + std::to_string(begin - from) + ", " + std::to_string(end - from) + ")";
    };
    auto named = allocation.names.upper_bound(begin);
    if (named != allocation.names.begin()) {
        const auto& [offset, name] = *std::prev(named);
        if (begin < offset + name.first) {
            return name.second + bytes(offset);
        }
    }
    std::ostringstream address;
    address << static_cast<const void*>(allocation.data);
    return (allocation.place == Place::device ? "device memory " : "pinned memory ") +
           address.str() + bytes(0);
}

void restart() {
    Engine& the = engine();
    Lock lock(the.mutex);
    for (const auto& [handle, stream] : the.streams) {
        stream->closing = true;
    }
    for (const Device& device : the.devices) {
        if (device.legacy) {
            device.legacy->closing = true;
        }
    }
    for (const auto& [address, allocation] : the.memory) {
        std::free(allocation.data);
    }
    the.memory.clear();
    the.freed.clear();
    the.streams.clear();
    the.events.clear();
    the.agents = 0;
    the.host.clear();
    restart_ledger();
    read_environment(the);
    current_device() = 0;
    the.changed.notify_all();
}

} // namespace foregather::emulation

extern "C" void foregather_emulation_name(const void* what, std::size_t bytes, const char* name) {
    using namespace foregather::emulation;
    Engine& the = engine();
    const Lock lock(the.mutex);
    if (bytes == 0) {
        const auto stream = the.streams.find(static_cast<cudaStream_t>(const_cast<void*>(what)));
        if (stream != the.streams.end()) {
            stream->second->label = std::string("stream ") + name;
        }
    } else if (Allocation* allocation = find_allocation(the, what); allocation != nullptr) {
        const auto offset = static_cast<std::size_t>(static_cast<const char*>(what) -
                                                     static_cast<const char*>(allocation->data));
        allocation->names[offset] = {bytes, name};
    }
}
