// SPDX-License-Identifier: Apache-2.0
// The only switch over kinds of device, and the host set.
#include <foregather/backend/backend.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/kernels/cuda_kernels.hpp>
#include <foregather/kernels/host_kernels.hpp>

#include "cuda.hpp"

namespace foregather::backend {
namespace {

class HostBackend final : public Backend {
public:
    HostBackend(int threads, const kernels::ProductChoice& product)
        : device_(device::make_host_device(threads)),
          kernels_(kernels::make_host_kernels(*device_, threads, product)) {}

    std::string kind() const override { return "host"; }
    device::Device& device() override { return *device_; }
    kernels::Kernels& kernels() override { return *kernels_; }
    std::string transport() const override { return "mpi"; }
    bool can_share() const override { return true; }
    std::unique_ptr<comm::Communicator>
    gather_communicator(const mesh::Topology& topology, const deck::CommSection& options) override {
        const comm::MpiOptions mpi{options.timeout_s, options.link_rate_bytes_per_s};
        return topology.shard_shares_nodes()
                   ? comm::make_node_communicator(topology.shard(), topology.shard_node(), mpi)
                   : comm::make_mpi_communicator(topology.shard(), mpi);
    }
    std::unique_ptr<comm::Communicator> reduce_communicator(const mesh::Topology& topology,
                                                            const deck::CommSection& options,
                                                            bool in_place) override {
        const comm::MpiOptions mpi{options.timeout_s, options.link_rate_bytes_per_s};
        return in_place ? comm::make_shared_communicator(topology.shard(), mpi)
                        : comm::make_mpi_communicator(topology.shard(), mpi);
    }
    std::unique_ptr<comm::Communicator>
    replica_communicator(const mesh::Topology& topology,
                         const deck::CommSection& options) override {
        return comm::make_mpi_communicator(topology.replica_peers(),
                                           {options.timeout_s, options.link_rate_bytes_per_s});
    }
    int threads_seen(device::Stream& compute) const override {
        return device::host_stream(compute).threads_seen();
    }
    std::int64_t judged_compute_ns() const override { return 2'000'000; }

private:
    std::unique_ptr<device::Device> device_;
    std::unique_ptr<kernels::Kernels> kernels_;
};

struct ChosenProducts {
    kernels::ProductChoice choice;
    std::string why;
};

// Ranks on different processors must multiply alike: the best level that all of them have, by a
// library that all of them can load.
ChosenProducts agree_on_products(const std::string& asked, const mesh::Control& control) {
    const auto& levels = kernels::core_levels; // ascending
    const auto own = std::find(levels.begin(), levels.end(), kernels::supported_core_level());
    const std::int64_t lowest = -control.max(levels.begin() - own);
    const std::string level = levels[static_cast<std::size_t>(lowest)];
    if (asked != "auto") {
        return {{asked, level}, "asked for"};
    }
    const kernels::FastestProducts fastest = kernels::fastest_products(level);
    if (control.max(fastest.can_be_loaded ? 0 : 1) > 0) {
        return {{"openblas", level}, "not every rank can load " + fastest.library};
    }
    return {{fastest.library, level}, "measured as the fastest with these vectors"};
}

// Variables that decide which product kernels run, or that a user may have meant to.
void look_at_variables(const ChosenProducts& products, Backend& backend) {
    const std::string level_name = backend.kernels().product_name();
    const auto is_set = [](const char* variable) {
        const char* value = std::getenv(variable);
        return value != nullptr && *value != '\0';
    };
    const bool onednn = products.choice.library == "onednn";
    for (const auto& [variable, reads] :
         {std::pair{"OPENBLAS_CORETYPE", products.choice.library == "openblas"},
          std::pair{"BLIS_ARCH_TYPE", products.choice.library == "blis"},
          std::pair{"ONEDNN_MAX_CPU_ISA", onednn}, std::pair{"DNNL_MAX_CPU_ISA", onednn}}) {
        if (is_set(variable) && reads) {
            backend.overrides.push_back(std::string(variable) + " = " + std::getenv(variable) +
                                        " overrides which kernels device.products chooses: "
                                        "products are by " +
                                        level_name);
        } else if (is_set(variable)) {
            backend.notes.push_back(std::string(variable) +
                                    " is set and has no effect: products are by " + level_name +
                                    " (device.products)");
        }
    }
}

std::unique_ptr<Backend> open_host(const deck::DeviceSection& section,
                                   const mesh::Topology& topology, const mesh::Control& control) {
    const ChosenProducts products = agree_on_products(section.products, control);
    std::unique_ptr<Backend> backend;
    control.together([&] {
        backend = std::make_unique<HostBackend>(
            compute_threads(section.threads, topology.node_cores(), topology.local_size()),
            products.choice);
    });
    backend->why_product = products.why;
    look_at_variables(products, *backend);
    return backend;
}

// Where nodes differ, what every rank can do is done: the first reason of any rank, the same on
// all, or "".
std::string why_not_cuda(const FoundGpu& gpu, const mesh::Topology& topology,
                         const mesh::Control& control) {
    const auto& places = topology.places();
    const auto named = [&](std::size_t r) {
        return "rank " + std::to_string(r) + " (" + places[r].host + ")";
    };
    const auto reasons = control.gather(gpu.why_not);
    const bool alike = std::all_of(reasons.begin(), reasons.end(),
                                   [&](const std::string& r) { return r == reasons[0]; });
    for (std::size_t r = 0; r < reasons.size(); ++r) {
        if (!reasons[r].empty()) {
            return alike ? reasons[r] : named(r) + ": " + reasons[r];
        }
    }
    const auto addresses = control.gather(gpu.address);
    for (std::size_t r = 0; r < addresses.size(); ++r) {
        for (std::size_t q = r; q-- > 0 && places[q].node == places[r].node;) {
            if (addresses[q] == addresses[r]) {
                return named(q) + " and " + named(r) + " would share the GPU " + addresses[r] +
                       ", which NCCL refuses: start one rank for each GPU, or show each rank its "
                       "own (CUDA_VISIBLE_DEVICES)";
            }
        }
    }
    return "";
}

void require_one_product(Backend& backend, const mesh::Control& control) {
    const auto names = control.gather(backend.kernels().product_name());
    for (std::size_t r = 1; r < names.size(); ++r) {
        if (names[r] != names[0]) {
            throw mesh::AgreedError(
                base::Status::refused,
                "rank 0 multiplies with " + names[0] + " and rank " + std::to_string(r) + " with " +
                    names[r] + "; results would depend on who computes what. Give all ranks " +
                    (backend.kind() == "cuda"
                         ? "the same kind of GPU and the same cuBLAS."
                         : "the same library and the same OPENBLAS_CORETYPE or "
                           "ONEDNN_MAX_CPU_ISA."));
        }
    }
}

} // namespace

int compute_threads(int asked, int node_cores, int ranks_on_node) {
    return asked > 0 ? asked : std::max(1, node_cores / std::max(1, ranks_on_node));
}

namespace {

Needs needs_with(const std::string& kind, int threads, base::Bytes memory) {
    if (kind != "cuda") {
        return {.scratch = threads * kernels::host_scratch_bytes};
    }
    // Parts and slots of whole pages, so that either arena can become one symmetric window.
    return {.arena_alignment = {4096},
            .row_multiple = kernels::cuda_row_multiple,
            .scratch = kernels::cuda_scratch_bytes,
            .host_memory = false,
            .memory = memory};
}

} // namespace

Needs needs_of(const std::string& kind, int threads) {
    return needs_with(kind, threads, kind == "cuda" ? cuda_memory() : base::Bytes{});
}

Needs needs_of(Backend& backend) {
    const device::Facts facts = backend.device().facts();
    return needs_with(backend.kind(), facts.threads, facts.memory);
}

std::string built() { return cuda_built() ? "host, cuda" : "host"; }

Choice choose(const std::string& asked, const std::string& place) {
    if (asked == "host") {
        return {"host", "asked for"};
    }
    const FoundGpu gpu = find_gpu(0);
    if (asked == "cuda") {
        if (!cuda_built()) {
            base::refuse(place + " = cuda: " + gpu.why_not + "; use device.kind = host or auto");
        }
        return {"cuda", gpu.ordinal >= 0 ? "asked for" : "asked for; here " + gpu.why_not};
    }
    return gpu.ordinal >= 0 ? Choice{"cuda", "a GPU was found"} : Choice{"host", gpu.why_not};
}

std::unique_ptr<Backend> open(const deck::DeviceSection& section, const std::string& place,
                              const mesh::Topology& topology, const mesh::Control& control) {
    FoundGpu gpu;
    std::string why = "asked for", note;
    if (section.kind != "host") {
        control.together([&] { gpu = find_gpu(topology.local_rank()); });
        const std::string why_not = why_not_cuda(gpu, topology, control);
        if (section.kind == "cuda" && !why_not.empty()) {
            throw mesh::AgreedError(base::Status::refused, place + " = cuda: " + why_not +
                                                               "; use device.kind = host or auto");
        }
        if (section.kind == "auto") {
            why = why_not.empty() ? "a GPU was found for every rank" : why_not;
        }
        gpu.ordinal = why_not.empty() ? gpu.ordinal : -1;
        if (!why_not.empty() && control.max(gpu.seen ? 1 : 0) > 0) {
            note = "there are GPUs, but device.kind = auto takes the host: " + why_not;
        }
    }
    auto backend = gpu.ordinal >= 0 ? open_cuda(section, gpu, topology, control)
                                    : open_host(section, topology, control);
    backend->why = why;
    if (!note.empty()) {
        backend->notes.push_back(note);
    }
    require_one_product(*backend, control);
    const Needs needs = needs_of(*backend);
    if (backend->kernels().row_multiple() != needs.row_multiple ||
        backend->device().host_memory() != needs.host_memory) {
        base::fail("the " + backend->kind() + " backend is not what its memory is planned for");
    }
    return backend;
}

} // namespace foregather::backend
