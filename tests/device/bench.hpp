// SPDX-License-Identifier: Apache-2.0
// What the parts of the device bench share: the GPU opened as the program opens it, rows of
// results, times by events, numbers to compute with. It decides no shape and no figure: each part
// does.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>
#include <foregather/model/config.hpp>

#include "../../src/device/cuda/cuda.hpp"

namespace foregather::device_bench {

using base::Elements;
using Columns = nlohmann::ordered_json; // of one row; a name's end tells its unit, as "step_s"

struct Options {
    std::string part;
    std::string out;   // file of rows: a JSON object a line
    double budget_s{}; // no new measurement begins after so long
    bool tiny = false; // shapes of a test: what they measure means nothing
    bool emulated = false;
};

// Rows of results, each in the file once add() returns: what was measured before a failure is kept.
// Other ranks than the first write nothing.
class Report {
public:
    Report(const Options& options, bool first_rank);

    void add(const std::string& table, const Columns& row);
    // Why a part, or what it names of one, is not in the file.
    void skip(const std::string& reason) { write({{"skipped", reason}}); }
    void fail(const std::string& reason) { write({{"failed", reason}}); }
    // Is there time for one more measurement? The first no is written down with `what` was left.
    bool time_for(const std::string& what);

private:
    void write(Columns line);

    const Options& options_;
    bool first_rank_;
    bool cut_ = false;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::ofstream file_;
};

// Time between two points of one stream or of two.
class Stopwatch {
public:
    explicit Stopwatch(device::EventPool& pool) : begin_(pool.take()), end_(pool.take()) {}
    void start(device::Stream& stream) { record(begin_, stream); }
    void stop(device::Stream& stream) { record(end_, stream); }
    double seconds() const; // blocks until both are reached

private:
    static void record(const device::OwnedEvent& event, device::Stream& stream);

    device::OwnedEvent begin_, end_;
};

// Normal numbers, as weights and activations resemble them: products of zeros draw less power and
// run faster. A block of them is made once for each type and scale, and repeated.
class Normals {
public:
    Normals(device::Device& device, bool tiny);

    void fill(base::Slab device_memory, double scale, device::Stream& stream);
    void ones(base::Slab device_memory, device::Stream& stream);
    void fill_host(base::Slab host_memory, double scale);

private:
    using Block = device::HostBuffer<std::byte>;
    const Block& block(base::DType type, double scale, double shift);

    device::Device& device_;
    Elements block_elements_;
    std::map<std::tuple<base::DType, double, double>, Block> blocks_;
};

inline constexpr double weight_scale = 0.02;

struct Bench {
    const Options& options;
    Report& report;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<kernels::Kernels> kernels; // for one stream: `compute`
    std::unique_ptr<device::Stream> compute;
    std::unique_ptr<Normals> normals;
    // Kept to the end: whoever waits for the device looks after all that it has seen.
    std::vector<std::unique_ptr<comm::Communicator>> communicators{};
    device::EventPool events{};
    int gpu = 0; // its ordinal
    int rank = 0, ranks = 1;

    // Seconds of one call of `enqueue` on a stream, of as many as make least_s together, after one
    // that is not counted.
    double time(device::Stream& stream, double least_s, const std::function<void()>& enqueue);
    // Device memory that can still be had.
    base::Bytes free_memory() const;
};

// n elements of device memory.
struct Array {
    device::Buffer<std::byte> memory;
    Elements n = 0;
    base::DType type = base::DType::f32;

    Array(device::Device& device, Elements count, base::DType kind, const std::string& purpose)
        : memory(device, base::bytes_of(count, kind).count, purpose), n(count), type(kind) {}
    base::Slab slab() const { return {memory.view().data(), n, type}; }
    base::Slab first(Elements count) const { return slab().part(0, count); }
    base::View<float> floats(Elements count) const { // of an fp32 array
        return {slab().f32(), static_cast<std::size_t>(count)};
    }
};

// Published configurations, with so many layers and so large a vocabulary (0: the published ones).
// tiny: of the same family, for tests.
model::ModelConfig qwen3_32b(const Options& options, int layers, std::int64_t vocabulary);
model::ModelConfig llama31_8b(const Options& options, int layers, std::int64_t vocabulary);

double median(std::vector<double> values);

// The parts; each throws base::Error where it cannot go on.
void provenance(Bench& bench);
void products(Bench& bench);
void forward(Bench& bench);
void streaming(Bench& bench);
void contention(Bench& bench);
void collectives(Bench& bench); // collective over MPI_COMM_WORLD, a rank a GPU

} // namespace foregather::device_bench
