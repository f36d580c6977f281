// SPDX-License-Identifier: Apache-2.0
// The options of a deck as plain structs, one per section, with their defaults: the one place where
// a default is written. It decides no range and reads no text: src/deck/sections.cpp binds each
// member to its key, range and help.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>

namespace foregather::deck {

// The value of a whole number that is `auto`.
inline constexpr int automatic = -1;

// A quantity that says how well it is known and where it comes from.
struct Sourced {
    double value = 0;   // in bytes, bytes/s, flop/s, s or 1
    std::string basis;  // measured, published, assumed, fitted; empty: not given
    std::string source; // in words

    bool given() const { return !basis.empty(); }

    friend bool operator==(const Sourced&, const Sourced&) = default;
};

struct JobSection {
    std::string name;    // required
    bool strict = false; // refuse keys that would be inert or clamped
    std::string title;
    double max_time_s = 0; // 0: until the batch system's end, where it is known

    friend bool operator==(const JobSection&, const JobSection&) = default;
};

struct ModelSection {
    std::string weights;        // path, variables expanded; train: may be empty, with a config
    std::string config;         // path of a config.json; empty: that of the weights
    std::int64_t init_seed = 0; // of random weights, where there is only a config

    friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

struct DataSection {
    std::string tokens;             // required; path, variables expanded
    std::int64_t window = 0;        // tokens; 0: documents are whole
    std::int64_t stride = 0;        // tokens; 0: window - 1
    std::int64_t max_documents = 0; // 0: all
    bool any_tokenizer = false;

    friend bool operator==(const DataSection&, const DataSection&) = default;
};

struct DeviceSection {
    std::string kind = "auto";     // auto, host, cuda
    int threads = 0;               // 0: this node's cores shared between its ranks
    std::string products = "auto"; // auto, onednn, openblas, blis
    bool tf32 = false;

    friend bool operator==(const DeviceSection&, const DeviceSection&) = default;
};

struct MeshSection {
    int shard = 0; // 0: all ranks

    friend bool operator==(const MeshSection&, const MeshSection&) = default;
};

struct FsdpSection {
    int forward_prefetch = 1;
    int backward_prefetch = 1;
    bool reshard_after_forward = true;
    std::string reduce_dtype = "fp32"; // fp32, bf16
    std::string param_dtype = "auto";  // auto, fp32, bf16
    base::Bytes piece_bytes{0};        // 0: the largest layer, at least 4 MiB
    base::Bytes gather_memory{0};      // 0: no limit
    std::string offload = "none";      // none, params

    friend bool operator==(const FsdpSection&, const FsdpSection&) = default;
};

struct CommSection {
    std::string transport = "auto"; // auto, mpi, shared, nccl
    double timeout_s = 120;
    double link_rate_bytes_per_s = 0; // 0: off

    friend bool operator==(const CommSection&, const CommSection&) = default;
};

struct BatchSection {
    std::int64_t tokens = 2048;

    friend bool operator==(const BatchSection&, const BatchSection&) = default;
};

struct ScoreSection {
    double temperature = 1.0;
    bool entropy = false;
    int top_k = 0; // tokens
    bool hidden_states = false;
    bool logits = false;

    // Is more asked for than the log-probabilities of the tokens that came?
    bool more() const { return entropy || top_k > 0 || hidden_states || logits; }

    friend bool operator==(const ScoreSection&, const ScoreSection&) = default;
};

struct TrainSection {
    std::int64_t steps = 0;          // required by train
    double learning_rate = 0;        // required by train
    std::string schedule = "cosine"; // constant, cosine, linear
    std::int64_t warmup_steps = 0;
    double min_learning_rate = 0;
    double beta1 = 0.9, beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    std::string decay = "matrices"; // matrices, all
    double gradient_clip_norm = 1;  // 0: off
    std::int64_t accumulate = 1;    // packs of a rank in an optimizer step
    std::int64_t batch_documents = 0;
    std::string recompute = "layer"; // layer, none
    std::int64_t seed = 0;
    bool shuffle = true;
    std::int64_t max_bad_steps = 3;
    std::string evaluate;            // path of a token file, variables expanded; empty: none
    std::int64_t evaluate_every = 0; // steps; 0: at the end alone

    friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

struct CheckpointSection {
    std::string directory;       // path, variables expanded; empty: none are written
    std::int64_t every = 0;      // steps; 0: at the end alone
    std::int64_t keep = 0;       // 0: all
    std::string resume = "auto"; // auto, none, or the path of a checkpoint
    bool load_optimizer = true;

    friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

struct BenchSection {
    std::string job = "score";           // score, train: whose passes are measured
    std::vector<std::int64_t> depths;    // empty: 0 and fsdp.forward_prefetch
    std::vector<std::string> transports; // empty: comm.transport
    std::vector<std::int64_t> tokens;    // empty: batch.tokens
    std::int64_t steps = 5;              // measured in each turn of a depth
    std::int64_t warmup = 1;             // before them
    std::int64_t pairs = 7;              // rounds in which every depth has a turn
    std::int64_t seed = 0;               // of the order of turns and of the intervals

    friend bool operator==(const BenchSection&, const BenchSection&) = default;
};

struct PlanSection {
    std::string job = "train";        // score, train: whose passes are planned
    std::string model;                // required; path of a config.json or a weights file
    std::string machine;              // path of a deck that holds [machine]
    std::string measured;             // path of a bench's results, in the machine's place
    std::vector<std::int64_t> ranks;  // required
    std::vector<std::int64_t> shards; // ranks that hold one copy; empty, 0: all
    std::vector<std::int64_t> depths{0, 1};
    std::vector<std::int64_t> tokens; // of a rank and pass; required
    std::int64_t document = 0;        // tokens; 0: a pack is one document
    bool published = false;           // print published figures beside what is predicted

    friend bool operator==(const PlanSection&, const PlanSection&) = default;
};

struct MachineSection {
    std::string name;
    std::string kind = "cuda"; // cuda, host: of its devices
    Sourced ranks_per_node;
    Sourced memory; // of a rank's device; host: of a node
    Sourced bf16_flops, fp32_flops, product_share, attention_share;
    Sourced memory_bandwidth, memory_share;
    Sourced node_bandwidth, node_share, node_latency;          // between ranks of a node
    Sourced network_bandwidth, network_share, network_latency; // of a rank, between nodes
    Sourced step_gap;
    Sourced compute_slowdown, collective_slowdown;

    friend bool operator==(const MachineSection&, const MachineSection&) = default;
};

struct OutputSection {
    std::string file;                // required; path, variables expanded
    std::string existing = "refuse"; // refuse, replace, resume
    double flush_every_s = 30;
    bool timeline = true;
    std::int64_t timeline_passes = 64;
    std::string require = "none";     // none, observed
    std::string log;                  // path, variables expanded; empty: no log
    std::string environment = "warn"; // warn, strict

    friend bool operator==(const OutputSection&, const OutputSection&) = default;
};

struct Sections {
    JobSection job;
    ModelSection model;
    DataSection data;
    DeviceSection device;
    MeshSection mesh;
    FsdpSection fsdp;
    CommSection comm;
    BatchSection batch;
    ScoreSection score;
    TrainSection train;
    CheckpointSection checkpoint;
    BenchSection bench;
    PlanSection plan;
    MachineSection machine;
    OutputSection output;

    friend bool operator==(const Sections&, const Sections&) = default;
};

} // namespace foregather::deck
