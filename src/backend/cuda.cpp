// SPDX-License-Identifier: Apache-2.0
// The CUDA set: one GPU of this rank's own, kernels on it, NCCL between GPUs.
#include "cuda.hpp"

#include <foregather/base/error.hpp>
#include <foregather/comm/nccl_communicator.hpp>
#include <foregather/device/cuda_device.hpp>
#include <foregather/kernels/cuda_kernels.hpp>

namespace foregather::backend {
namespace {

class CudaBackend final : public Backend {
public:
    CudaBackend(int ordinal, bool tf32)
        : device_(device::make_cuda_device(ordinal)),
          kernels_(kernels::make_cuda_kernels(*device_, tf32)) {}

    std::string kind() const override { return "cuda"; }
    device::Device& device() override { return *device_; }
    kernels::Kernels& kernels() override { return *kernels_; }
    std::string transport() const override { return "nccl"; }
    bool can_share() const override { return false; }
    std::unique_ptr<comm::Communicator>
    gather_communicator(const mesh::Topology& topology, const deck::CommSection& options) override {
        return communicator(topology.shard(), "gather", options);
    }
    std::unique_ptr<comm::Communicator> reduce_communicator(const mesh::Topology& topology,
                                                            const deck::CommSection& options,
                                                            bool /*in_place*/) override {
        return communicator(topology.shard(), "reduce", options);
    }
    std::unique_ptr<comm::Communicator>
    replica_communicator(const mesh::Topology& topology,
                         const deck::CommSection& options) override {
        return communicator(topology.replica_peers(), "replica", options);
    }
    int threads_seen(device::Stream& /*compute*/) const override { return 0; }
    std::int64_t judged_compute_ns() const override { return 20'000; }

private:
    std::unique_ptr<comm::Communicator> communicator(MPI_Comm group, const char* role,
                                                     const deck::CommSection& options) {
        return comm::make_nccl_communicator(
            group, *device_, {role, options.timeout_s, options.link_rate_bytes_per_s});
    }

    std::unique_ptr<device::Device> device_;
    std::unique_ptr<kernels::Kernels> kernels_;
};

std::vector<std::string> environment_overrides(const deck::DeviceSection& section, bool gathers) {
    std::vector<std::string> told = kernels::cuda_product_overrides(section.tf32);
    if (gathers) {
        for (std::string& text : comm::nccl_override_files()) {
            told.push_back(std::move(text));
        }
    }
    return told;
}

// GPUs of a node that do not reach each other's memory: gathers between them go through the host's.
std::vector<std::string> notes_on_reach(const FoundGpu& gpu, const mesh::Topology& topology,
                                        const mesh::Control& control) {
    const auto addresses = control.gather(gpu.address);
    std::vector<std::string> others;
    for (const mesh::RankPlace& place : topology.places()) {
        if (place.node == topology.node() && place.rank != topology.rank()) {
            others.push_back(addresses[static_cast<std::size_t>(place.rank)]);
        }
    }
    std::string far;
    for (const std::string& address : device::gpus_out_of_reach(gpu.ordinal, others)) {
        far += (far.empty() ? "" : ", ") + address;
    }
    std::vector<std::string> notes;
    const auto all = control.gather(far);
    for (std::size_t r = 0; r < all.size(); ++r) {
        if (!all[r].empty()) {
            notes.push_back("rank " + std::to_string(r) + " (" + topology.places()[r].host +
                            ", GPU " + addresses[r] + ") has no peer access to " + all[r] +
                            ": what NCCL gathers between them goes through host memory");
        }
    }
    return notes;
}

} // namespace

bool cuda_built() { return true; }

CudaVersions cuda_built_with() {
    return {device::cuda_built_with() + ", cuBLASLt " + kernels::cublaslt_built_with(),
            comm::nccl_built_with()};
}

base::Bytes cuda_memory() { return device::gpu_memory(); }

FoundGpu find_gpu(int local_rank) {
    const device::VisibleGpus visible = device::visible_gpus();
    if (visible.count == 0) {
        return {-1, "", visible.why_none};
    }
    const int ordinal = device::gpu_of(local_rank, visible.count);
    if (ordinal < 0) {
        return {-1, "",
                "its node shows " + std::to_string(visible.count) +
                    " GPUs, too few for local rank " + std::to_string(local_rank),
                true};
    }
    if (const std::string why = device::why_kernels_cannot_run(ordinal); !why.empty()) {
        return {-1, "", why, true};
    }
    return {ordinal, device::gpu_address(ordinal), "", true};
}

std::unique_ptr<Backend> open_cuda(const deck::DeviceSection& section, const FoundGpu& gpu,
                                   const mesh::Topology& topology, const mesh::Control& control) {
    std::unique_ptr<CudaBackend> backend;
    const bool gathers = topology.shard_size() > 1;
    control.together([&] {
        backend = std::make_unique<CudaBackend>(gpu.ordinal, section.tf32);
        if (gathers) {
            static_cast<void>(comm::nccl_version()); // refused now if there is no NCCL
        }
    });
    backend->why_product = section.tf32 ? "fp32 products may use TF32 (device.tf32)" : "";
    backend->overrides = environment_overrides(section, gathers);
    backend->notes = notes_on_reach(gpu, topology, control);
    return backend;
}

} // namespace foregather::backend
