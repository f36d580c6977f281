// SPDX-License-Identifier: Apache-2.0
// What computes and what communicates, as one set, opened once at start: the only place in the
// program that knows which kinds there are. After start-up it only hands over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/deck/sections.hpp>
#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/topology.hpp>

namespace foregather::backend {

// What a kind asks of whoever lays out memory for it: known without opening a device.
struct Needs {
    base::Bytes arena_alignment{1};  // units' parts and slots begin at multiples of it
    base::Elements row_multiple = 1; // Kernels::row_multiple()
    base::Bytes scratch{};           // of a rank's kernels
    bool host_memory = true;         // Device::host_memory()
    base::Bytes memory{};            // of a rank's device; 0: the node's, or unknown
};
// threads: of a rank, on the host.
Needs needs_of(const std::string& kind, int threads);
class Backend;
// Of a backend that is open, whose device has said what it is.
Needs needs_of(Backend& backend);

class Backend {
public:
    virtual ~Backend() = default;

    virtual std::string kind() const = 0; // "host" or "cuda"
    virtual device::Device& device() = 0;
    virtual kernels::Kernels& kernels() = 0;
    // Transport of gathers that copy: "mpi" on the host, "nccl" on cuda.
    virtual std::string transport() const = 0;
    // Can the ranks of a node read each other's shards in place?
    virtual bool can_share() const = 0;
    // Over the shard group. Collective; blocks.
    virtual std::unique_ptr<comm::Communicator>
    gather_communicator(const mesh::Topology& topology, const deck::CommSection& options) = 0;
    // Of gradients: over the shard group, beside the gathers, and over the ranks that hold the same
    // part in each replica. in_place: the group's ranks may read each other's gradients where they
    // lie, if can_share(); allocate() of the result is collective then. Collective over these
    // ranks; blocks.
    virtual std::unique_ptr<comm::Communicator>
    reduce_communicator(const mesh::Topology& topology, const deck::CommSection& options,
                        bool in_place) = 0;
    virtual std::unique_ptr<comm::Communicator>
    replica_communicator(const mesh::Topology& topology, const deck::CommSection& options) = 0;
    // The shortest compute by which the verdict on the prefetch judges.
    virtual std::int64_t judged_compute_ns() const = 0;

    // Threads of the compute stream that have computed something so far.
    virtual int threads_seen(device::Stream& compute) const = 0;

    std::string why;                // why this kind was chosen
    std::string why_product;        // why these product kernels were
    std::vector<std::string> notes; // what the user should be told, the same on every rank
    // Environment variables that override or defeat a key: one sentence each, for
    // output.environment.
    std::vector<std::string> overrides;
};

// Chooses the kind that the deck asks for; `place` begins messages: "score.deck:9: device.kind".
// Collective; blocks. Throws Error(refused), the same on every rank, for a kind that cannot be had.
std::unique_ptr<Backend> open(const deck::DeviceSection& section, const std::string& place,
                              const mesh::Topology& topology, const mesh::Control& control);

// Without opening anything: what `device.kind` would become here, and why; cuda, where it is asked
// for and built in, also without a GPU.
struct Choice {
    std::string kind;
    std::string why;
};
Choice choose(const std::string& asked, const std::string& place);

// Threads of a rank's compute stream: as asked, or the node's cores shared between its ranks.
int compute_threads(int asked, int node_cores, int ranks_on_node);

// The backends compiled in: "host" or "host, cuda".
std::string built();
// What the CUDA backend was built with: "13.0, cuBLASLt 13.1.0" and "2.28.9"; "not built in".
struct CudaVersions {
    std::string cuda, nccl;
};
CudaVersions cuda_built_with();

} // namespace foregather::backend
