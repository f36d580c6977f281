// SPDX-License-Identifier: Apache-2.0
// What computes: memory, streams, events, copies between host memory and device memory, a clock.
// It never knows what a buffer means.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::device {

enum class Priority { normal, high };

struct Facts {
    std::string kind; // "host" or "cuda"
    std::string name; // the processor's own name
    int threads = 1;  // host: threads of the compute stream
};

// Device memory of a fixed size, page-aligned, freed with its owner.
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

    // Enqueue a copy; both sides must live until it is done, and host memory must not change
    // before.
    template <class T>
    void copy_in(base::View<const T> host, base::View<T> device, Stream& stream) {
        copy(std::as_bytes(host), std::as_writable_bytes(device), stream);
    }
    template <class T>
    void copy_out(base::View<const T> device, base::View<T> host, Stream& stream) {
        copy(std::as_bytes(device), std::as_writable_bytes(host), stream);
    }

    virtual std::int64_t now_ns() const = 0; // monotonic, of this process
    virtual Facts facts() const = 0;

    int allocations() const { return allocations_; } // how many, ever: constant after start-up
    base::Bytes allocated() const { return allocated_; }

private:
    virtual std::unique_ptr<Memory> do_allocate(base::Bytes size) = 0;
    virtual void do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                         Stream& stream) = 0;
    void copy(base::View<const std::byte> from, base::View<std::byte> to, Stream& stream);

    int allocations_ = 0;
    base::Bytes allocated_;
};

// n elements of T in device memory. Move-only; must not outlive its device.
template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Buffer() = default;
    Buffer(Device& device, base::Elements n, const std::string& purpose)
        : memory_(device.allocate({n * static_cast<base::Elements>(sizeof(T))}, purpose)), n_(n) {}

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

} // namespace foregather::device
