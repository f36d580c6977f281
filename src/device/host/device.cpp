// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the host.
#include <foregather/device/host_device.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>

#include "worker.hpp"

namespace foregather::device {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

class HostMemory final : public Memory {
public:
    explicit HostMemory(base::Bytes size) : size_(size) {
        const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
        // Large memory on huge pages, where the system gives them: touching it the first time
        // costs a fault for each page, as much as reading the weights into it. Only advice: a
        // system that does not take it gives plain pages.
        const std::size_t unit = wanted >= 2 * huge_page ? huge_page : page;
        const std::size_t rounded = (wanted + unit - 1) / unit * unit;
        data_ = static_cast<std::byte*>(std::aligned_alloc(unit, rounded));
        if (data_ == nullptr) {
            throw std::bad_alloc();
        }
        if (unit == huge_page) {
            static_cast<void>(madvise(data_, rounded, MADV_HUGEPAGE));
        }
    }
    ~HostMemory() override { std::free(data_); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    std::byte* data() const override { return data_; }
    base::Bytes size() const override { return size_; }

private:
    std::byte* data_ = nullptr;
    base::Bytes size_;
};

std::string processor_name() {
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (line.starts_with("model name")) {
            const auto colon = line.find(": ");
            return colon == std::string::npos ? "unknown" : line.substr(colon + 2);
        }
    }
    return "unknown";
}

class HostDevice final : public Device {
public:
    explicit HostDevice(int threads)
        : threads_(threads), fault_(std::make_shared<Fault>()), looks_(std::make_shared<Looks>()) {}

    std::unique_ptr<Stream> stream(const std::string& name, Priority priority) override {
        return std::make_unique<Worker>(name, priority == Priority::normal ? threads_ : 1, fault_);
    }
    std::unique_ptr<Event> event() override { return std::make_unique<HostEvent>(fault_, looks_); }
    void look_while_waiting(const std::shared_ptr<Look>& look) override { looks_->push_back(look); }
    std::int64_t now_ns() const override { return host_now_ns(); }
    Facts facts() const override { return {"host", processor_name(), threads_}; }
    bool host_memory() const override { return true; }

private:
    std::unique_ptr<Memory> do_allocate(base::Bytes size) override {
        return std::make_unique<HostMemory>(size);
    }
    std::unique_ptr<Memory> do_allocate_host(base::Bytes size) override {
        return std::make_unique<HostMemory>(size);
    }
    void do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                 Stream& stream) override {
        host_stream(stream).enqueue(
            [from, to] { std::copy(from.begin(), from.end(), to.begin()); });
    }

    int threads_;
    std::shared_ptr<Fault> fault_;
    std::shared_ptr<Looks> looks_;
};

} // namespace

std::unique_ptr<Device> make_host_device(int threads) {
    return std::make_unique<HostDevice>(std::max(threads, 1));
}

} // namespace foregather::device
