// SPDX-License-Identifier: Apache-2.0
// What a rank will hold, before anything is allocated, and which transport the gathers take: the
// same arithmetic for the run and for --check.
#pragma once

#include <string>
#include <vector>

#include <foregather/backend/backend.hpp>
#include <foregather/base/types.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/shard/layout.hpp>

#include "packs.hpp"

namespace foregather::job {

// A group of ranks that holds one copy of the weights.
struct GroupFacts {
    int ranks = 1;           // P
    bool on_one_node = true; // all of them
    int ranks_on_node = 1;   // of the job, on the fullest node
    base::Bytes window_free; // room for shared windows on this node
    std::string window_directory;
};

// One rank, and its weights in host memory: what is gathered are copies.
inline constexpr const char* host_memory_transport = "host memory";

struct Transport {
    std::string name; // "none", "shared", "mpi", "nccl", "host memory"
    std::string why;
};

// What a rank computes in one pass, as far as memory goes.
struct Work {
    const PackPlan& packs;
    const deck::ScoreSection& asked;
    int threads = 1;
    base::DType weights = base::DType::f32; // of the gathered ones
    backend::Needs needs{};
    bool offload = false; // parts lie in host memory, that of the device being another
};

// Where units lie when `ranks` share them.
shard::ArenaPlan arena_plan(const model::Chain& chain, int ranks, const backend::Needs& needs,
                            base::DType weights);

// fsdp.offload = params? Throws Error(refused) where the device's memory is the host's.
bool choose_offload(const deck::Deck& deck, const backend::Needs& needs);

// Throws Error(refused), with the key's place, for a pair that cannot be: shared across nodes,
// shared with a link rate, shared without room, a transport of another backend.
Transport choose_transport(const deck::Deck& deck, const std::string& copying_transport,
                           bool can_share, const GroupFacts& group, base::Bytes whole_weights,
                           bool offload);
// The same of one that `key` asks for, beside comm.transport.
Transport choose_transport(const deck::Deck& deck, const char* key, const std::string& asked,
                           const std::string& copying_transport, bool can_share,
                           const GroupFacts& group, base::Bytes whole_weights, bool offload);

// Does it copy weights, from other ranks or from host memory? And if not, why not, in words.
bool moves(const Transport& transport);
std::string why_nothing_moves(const Transport& transport);

struct MemoryPlan {
    struct Row {
        std::string name;
        base::Bytes bytes;
        std::string detail;
        base::Bytes on_host{}; // of `bytes`, what is no memory of a device that has its own
    };
    std::vector<Row> rows; // per rank
    int slots = 0;
    base::Bytes slot_bytes;
    base::Bytes total() const;
    base::Bytes on_device() const; // without what is in host memory
};
// What the ranks of a node hold in its memory together, and what it has, in words.
struct NodeMemory {
    base::Bytes of_rank, of_node;
    std::string text; // "2 ranks on a node: 3.4 GiB; this node has 15.6 GiB"
    bool fits = true;
    // "the memory plan of ...: that does not fit a node like this one"; "" if it does.
    std::string note() const;
};
NodeMemory memory_in_node(const MemoryPlan& plan, int ranks_on_node, const backend::Needs& needs,
                          base::Bytes node);
// Throws Error(refused), with the numbers, for a plan that a device of so much memory cannot hold.
void refuse_beyond_device(const MemoryPlan& plan, const device::Facts& facts);
// `depth`: in force, or the most that it may become.
MemoryPlan plan_memory(const model::ModelConfig& config, const model::Chain& chain, int ranks,
                       const Transport& transport, int depth, const Work& work);

// fsdp.forward_prefetch, as far as the model's units and fsdp.gather_memory let it be.
struct Depth {
    int units = 0;   // gathered ahead; of `auto` the most that it may become, until it is chosen
    std::string why; // it is less than asked for; "" if it is not; of `auto`, once chosen, why
    bool automatic = false;
    std::string told = {}; // of an `auto` that is chosen: what was predicted
};
// The largest depth that is asked for; of `auto` the largest that is tried.
int most_asked(int depth);
// What is told of an `auto` before it is chosen, or of a clamped default (the ledger tells of keys
// that were set); "" if nothing is.
std::string depth_note(const Depth& depth, const deck::Deck& deck, const char* key);
// "depth 1 chosen (auto): predicted exposure ..."
std::string chosen_line(const Depth& depth);
// Throws Error(refused), with the numbers and what to do, if gather_memory holds not even the
// largest unit.
Depth choose_depth(const deck::Deck& deck, const model::Chain& chain, const shard::ArenaPlan& arena,
                   const Transport& transport, base::DType weights);

// The type in which weights are gathered and multiplied, and why: fsdp.param_dtype, or what `auto`
// becomes on a kind of device.
struct ParamType {
    base::DType type = base::DType::f32;
    std::string why;
};
ParamType choose_param_type(const std::string& asked, const std::string& device_kind,
                            const std::vector<io::StoredTensor>& stored);

// "14.2 MiB", "3.4 GiB".
std::string in_words(base::Bytes bytes);

// The smallest group whose rank fits: divisors of `ranks` are tried in ascending order; 0 if none
// below `group` does, or is not known to. node_memory: of a node, shared by ranks_on_node ranks; a
// device with memory of its own must hold its rank. A fifth is left to others.
int smallest_group_that_fits(const model::ModelConfig& config, const model::Chain& chain, int ranks,
                             int group, int depth, const Work& work, int ranks_on_node,
                             base::Bytes node_memory);

base::Bytes node_memory();

} // namespace foregather::job
