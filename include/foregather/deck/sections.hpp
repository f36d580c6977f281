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
    std::string weights; // required; path, variables expanded

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
    std::string param_dtype = "auto"; // auto, fp32, bf16
    base::Bytes piece_bytes{0};       // 0: the largest layer, at least 4 MiB
    base::Bytes gather_memory{0};     // 0: no limit
    std::string offload = "none";     // none, params

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
    OutputSection output;

    friend bool operator==(const Sections&, const Sections&) = default;
};

} // namespace foregather::deck
