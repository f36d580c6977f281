// SPDX-License-Identifier: Apache-2.0
// The options of a deck as plain structs, one per section, with their defaults: the one place where
// a default is written. It decides no range and reads no text: src/deck/sections.cpp binds each
// member to its key, range and help.
#pragma once

#include <cstdint>
#include <string>

#include <foregather/base/types.hpp>

namespace foregather::deck {

struct JobSection {
    std::string name;    // required
    bool strict = false; // refuse keys that would be inert or clamped
    std::string title;

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
    OutputSection output;

    friend bool operator==(const Sections&, const Sections&) = default;
};

} // namespace foregather::deck
