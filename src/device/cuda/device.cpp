// SPDX-License-Identifier: Apache-2.0
// Which GPU, its memory, and copies between it and page-locked host memory.
#include <foregather/device/cuda_device.hpp>

#include <algorithm>
#include <cstdio>
#include <new>

#include "cuda.hpp"
#include "ranges.hpp"

namespace foregather::device {
namespace {

// Memory from `allocate`, given back by `release`.
class CudaMemory final : public Memory {
public:
    using Release = cudaError_t (*)(void*);
    CudaMemory(void* data, base::Bytes size, Release release)
        : data_(static_cast<std::byte*>(data)), size_(size), release_(release) {}
    ~CudaMemory() override { tell(release_(data_), "free memory"); }
    CudaMemory(const CudaMemory&) = delete;
    CudaMemory& operator=(const CudaMemory&) = delete;
    std::byte* data() const override { return data_; }
    base::Bytes size() const override { return size_; }

private:
    std::byte* data_;
    base::Bytes size_;
    Release release_;
};

void check_memory(cudaError_t rc, const std::string& attempted) {
    if (rc == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError()); // told here; the device is as good as before
        throw std::bad_alloc();
    }
    check(rc, attempted);
}

class CudaDevice final : public Device {
public:
    explicit CudaDevice(int ordinal);

    std::unique_ptr<Stream> stream(const std::string& name, Priority priority) override {
        return std::make_unique<CudaStream>(
            name, priority == Priority::high ? highest_priority_ : lowest_priority_, gpu_);
    }
    std::unique_ptr<Event> event() override { return std::make_unique<CudaEvent>(gpu_); }
    bool host_memory() const override { return false; }
    std::int64_t now_ns() const override { return steady_now_ns(); }
    void mark_time(Stream& stream) override { gpu_.clock->mark(cuda_stream(stream)); }
    void look_while_waiting(const std::shared_ptr<Look>& look) override {
        gpu_.looks.push_back(look);
    }
    RangeName range_name(const std::string& text) override { return ranges_.name(text); }
    void begin_range(RangeName name, std::int64_t number) override { ranges_.begin(name, number); }
    void end_range() override { ranges_.end(); }
    Facts facts() const override { return facts_; }

private:
    std::unique_ptr<Memory> do_allocate(base::Bytes size) override;
    std::unique_ptr<Memory> do_allocate_host(base::Bytes size) override;
    void do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                 Stream& stream) override;

    int lowest_priority_ = 0, highest_priority_ = 0;
    Facts facts_;
    Gpu gpu_;
    Ranges ranges_;
};

CudaDevice::CudaDevice(int ordinal) {
    check(cudaSetDevice(ordinal), "open GPU " + std::to_string(ordinal));
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal),
          "ask what GPU " + std::to_string(ordinal) + " is");
    facts_ = {"cuda",
              properties.name,
              1,
              gpu_address(ordinal),
              {static_cast<std::int64_t>(properties.totalGlobalMem)}};
    check(cudaDeviceGetStreamPriorityRange(&lowest_priority_, &highest_priority_),
          "ask for the range of stream priorities");
    const CudaStream stream("clock", lowest_priority_, gpu_);
    gpu_.clock = std::make_unique<EventClock>(gpu_.events, stream.handle());
}

std::size_t at_least_one(base::Bytes size) {
    return static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
}

std::unique_ptr<Memory> CudaDevice::do_allocate(base::Bytes size) {
    void* data = nullptr;
    check_memory(cudaMalloc(&data, at_least_one(size)), "allocate device memory");
    return std::make_unique<CudaMemory>(data, size, cudaFree);
}

std::unique_ptr<Memory> CudaDevice::do_allocate_host(base::Bytes size) {
    void* data = nullptr;
    check_memory(cudaHostAlloc(&data, at_least_one(size), cudaHostAllocDefault),
                 "allocate page-locked host memory");
    return std::make_unique<CudaMemory>(data, size, cudaFreeHost);
}

void CudaDevice::do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                         Stream& stream) {
    check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault,
                          cuda_stream(stream)),
          "copy " + std::to_string(from.size()) + " bytes on stream " + stream.name());
}

} // namespace

VisibleGpus visible_gpus() {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "ask for the driver's version");
    if (driver == 0) {
        return {0, "this machine has no CUDA driver"};
    }
    int count = 0;
    const cudaError_t rc = cudaGetDeviceCount(&count);
    if (rc != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return {0, std::string("no GPU can be used: ") + cudaGetErrorString(rc)};
    }
    return {count, count == 0 ? "this machine shows no GPU" : ""};
}

int gpu_of(int local_rank, int visible) {
    if (visible == 1) {
        return 0;
    }
    return local_rank < visible ? local_rank : -1;
}

bool code_runs(const std::vector<int>& archs, int capability) {
    const auto runs = [&](int arch) {
        return arch / 10 == capability / 10 && arch % 10 <= capability % 10;
    };
    return std::any_of(archs.begin(), archs.end(), runs) ||
           (!archs.empty() && archs.back() <= capability);
}

std::string why_kernels_cannot_run(int ordinal) {
    const std::vector<int> archs = {
#include <generated/cuda_archs.inc>
    };
    const auto dotted = [](int number) {
        return std::to_string(number / 10) + "." + std::to_string(number % 10);
    };
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal),
          "ask what GPU " + std::to_string(ordinal) + " is");
    const int capability = properties.major * 10 + properties.minor;
    if (code_runs(archs, capability)) {
        return "";
    }
    std::string known;
    for (const int arch : archs) {
        known += (known.empty() ? "" : ", ") + dotted(arch);
    }
    return std::string("its GPU, ") + properties.name + ", has compute capability " +
           dotted(capability) + ", and this program was compiled for " + known +
           " (make CUDA_ARCHS=...)";
}

base::Bytes gpu_memory() {
    if (visible_gpus().count == 0) {
        return {};
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "ask how much memory the first GPU has");
    return {static_cast<std::int64_t>(properties.totalGlobalMem)};
}

std::string gpu_address(int ordinal) {
    char bus[32] = "";
    check(cudaDeviceGetPCIBusId(bus, sizeof(bus), ordinal),
          "ask where GPU " + std::to_string(ordinal) + " is");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal),
          "ask what GPU " + std::to_string(ordinal) + " is");
    std::string address = std::string(bus) + " GPU-";
    for (std::size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
        char hex[4];
        std::snprintf(hex, sizeof(hex), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                      static_cast<unsigned char>(properties.uuid.bytes[i]));
        address += hex;
    }
    return address;
}

std::unique_ptr<Device> make_cuda_device(int ordinal) {
    return std::make_unique<CudaDevice>(ordinal);
}

std::vector<std::string> gpus_out_of_reach(int ordinal, const std::vector<std::string>& others) {
    std::vector<std::string> far;
    int visible = 0;
    check(cudaGetDeviceCount(&visible), "count the GPUs");
    for (int seen = 0; seen < visible; ++seen) {
        const std::string address = gpu_address(seen);
        if (seen == ordinal || std::find(others.begin(), others.end(), address) == others.end()) {
            continue;
        }
        int reach = 0;
        check(cudaDeviceCanAccessPeer(&reach, ordinal, seen),
              "ask whether GPU " + std::to_string(ordinal) + " reaches GPU " +
                  std::to_string(seen));
        if (reach == 0) {
            far.push_back(address);
        }
    }
    return far;
}

std::string cuda_built_with() {
    return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

} // namespace foregather::device
