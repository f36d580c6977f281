// SPDX-License-Identifier: Apache-2.0
// What computes: memory, streams, events, copies between host memory and device memory, a clock.
// It never knows what a buffer means.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::device {

enum class Priority { normal, high };

struct Facts {
    std::string kind;      // "host" or "cuda"
    std::string name;      // the processor's own name
    int threads = 1;       // host: threads of the compute stream
    std::string address{}; // cuda: "0000:3b:00.0 GPU-<uuid>", which no other device has
    base::Bytes memory{};  // cuda: of the device
};

// Memory of a fixed size, page-aligned, freed with its owner.
class Memory {
public:
    virtual ~Memory() = default;
    virtual std::byte* data() const = 0;
    virtual base::Bytes size() const = 0;
};

class Device {
public:
    virtual ~Device() = default;

    virtual std::unique_ptr<Stream> stream(const std::string& name, Priority priority) = 0;
    virtual std::unique_ptr<Event> event() = 0;
    // Contents are undefined. Throws Error(failed) with the size and what it was for.
    std::unique_ptr<Memory> allocate(base::Bytes size, const std::string& purpose);
    // Host memory that this device's copies read and write while the host goes on: page-locked
    // where the device needs that. Contents, errors and counting as above.
    std::unique_ptr<Memory> allocate_host(base::Bytes size, const std::string& purpose);
    // Device memory that `how` makes (a communicator's own allocator): counted as above. `how`
    // throws std::bad_alloc where there is none.
    using Allocator = std::function<std::unique_ptr<Memory>(base::Bytes)>;
    std::unique_ptr<Memory> allocate_by(const Allocator& how, base::Bytes size,
                                        const std::string& purpose);

    // Enqueue a copy; both sides must live until it is done, and host memory, which must be of
    // allocate_host(), must not change before. Do not block.
    template <class T>
    void copy_in(base::View<const T> host, base::View<T> device, Stream& stream) {
        copy(std::as_bytes(host), std::as_writable_bytes(device), stream);
    }
    template <class T>
    void copy_out(base::View<const T> device, base::View<T> host, Stream& stream) {
        copy(std::as_bytes(device), std::as_writable_bytes(host), stream);
    }

    virtual std::int64_t now_ns() const = 0; // monotonic, of this process
    // Enqueues a mark from which times of later events are counted, for devices whose events only
    // know differences. Once a pass: on the compute stream, before the pass's own work. An event's
    // time may be asked for until two marks after the one before it. Does not block.
    virtual void mark_time(Stream& /*stream*/) {}
    // Called again and again by whoever waits on the host for an event or a stream of this device,
    // on the waiting thread, as long as it lives: looks for errors and time limits that the device
    // itself would never report, and throws. For devices whose streams have no thread that could.
    using Look = std::function<void()>;
    virtual void look_while_waiting(const std::shared_ptr<Look>& /*look*/) {}
    // Ranges in which a profiler shows what is enqueued between their ends: on the enqueuing
    // thread, and, where it can, on the streams. They nest. Names are made once, before the work;
    // `number` is shown beside the name: which use, which pass. Devices that no profiler asks have
    // none.
    using RangeName = void*; // as the profiler has registered it; nullptr: nobody watches
    virtual RangeName range_name(const std::string& /*text*/) { return nullptr; }
    virtual void begin_range(RangeName /*name*/, std::int64_t /*number*/) {}
    virtual void end_range() {}
    virtual Facts facts() const = 0;
    // Can the host read and write memory of allocate() where it lies?
    virtual bool host_memory() const = 0;

    int allocations() const { return allocations_; }     // how many, ever: constant after start-up
    base::Bytes allocated() const { return allocated_; } // of the device, without host memory

private:
    virtual std::unique_ptr<Memory> do_allocate(base::Bytes size) = 0;
    virtual std::unique_ptr<Memory> do_allocate_host(base::Bytes size) = 0;
    virtual void do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                         Stream& stream) = 0;
    void copy(base::View<const std::byte> from, base::View<std::byte> to, Stream& stream);
    std::unique_ptr<Memory> counted(const Allocator& how, base::Bytes size,
                                    const std::string& where, const std::string& purpose);

    int allocations_ = 0;
    base::Bytes allocated_;
};

// A range of the device from here to the end of the block. Must not outlive the device.
class Range {
public:
    Range(Device& device, Device::RangeName name, std::int64_t number) : device_(device) {
        device_.begin_range(name, number);
    }
    ~Range() { device_.end_range(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

private:
    Device& device_;
};

enum class Where { device, host }; // host: Device::allocate_host()

// n elements of T in memory of a device, or in host memory for its copies. Move-only; must not
// outlive its device.
template <class T, Where where = Where::device>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Buffer() = default;
    Buffer(Device& device, base::Elements n, const std::string& purpose) : n_(n) {
        const base::Bytes size{n * static_cast<base::Elements>(sizeof(T))};
        memory_ = where == Where::device ? device.allocate(size, purpose)
                                         : device.allocate_host(size, purpose);
    }

    base::View<T> view() const {
        return {memory_ ? reinterpret_cast<T*>(memory_->data()) : nullptr,
                static_cast<std::size_t>(n_)};
    }
    base::View<T> first(base::Elements n) const {
        return view().first(static_cast<std::size_t>(n));
    }
    base::Elements size() const { return n_; }
    base::Bytes bytes() const { return {n_ * static_cast<base::Elements>(sizeof(T))}; }

private:
    std::unique_ptr<Memory> memory_;
    base::Elements n_ = 0;
};

template <class T>
using HostBuffer = Buffer<T, Where::host>;

} // namespace foregather::device
