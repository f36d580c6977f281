// SPDX-License-Identifier: Apache-2.0
// The run itself: passes over packs, two in flight, results fetched and written as they come.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include <foregather/backend/backend.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/mesh/watch.hpp>
#include <foregather/model/transformer.hpp>
#include <foregather/schedule/source.hpp>

#include "early_stop.hpp"
#include "figures.hpp"
#include "inputs.hpp"
#include "pack_buffers.hpp"
#include "progress.hpp"
#include "row_results.hpp"

namespace foregather::job {

// Pass p gives pack to_do[p x ranks + rank] to each rank; ranks beyond the last pack compute
// nothing in the last pass, but gather with the others.
class PassLoop {
public:
    struct Parts { // all must outlive the loop
        const deck::Sections& sections;
        const Inputs& inputs;
        const std::vector<std::int64_t>& to_do; // packs that are not in the results yet
        const mesh::Control& control;
        backend::Backend& backend;
        model::Transformer& transformer;
        schedule::TimedSource& source;
        io::ResultsFile& results;
        mesh::Watch& watch;
        Progress& progress;
        device::Stream& compute;
        EarlyStop& stop;
        // Have all ranks loaded their weights? Else nobody is to wait for a slow one but where its
        // part is read, and a stop is looked for behind the first pass.
        bool all_loaded;
        std::function<void(const std::string&)> noted; // of each note that the watch has told
    };
    // Allocates what two passes need in host and device memory.
    explicit PassLoop(const Parts& parts);
    // Waits until nothing in flight uses its memory, also while an exception is on its way.
    ~PassLoop();
    PassLoop(const PassLoop&) = delete;
    PassLoop& operator=(const PassLoop&) = delete;

    static std::int64_t passes(std::int64_t packs, int ranks) {
        return (packs + ranks - 1) / ranks;
    }
    // Collective; blocks. Adds to `figures`. Ends before the last pass where it is to stop: then
    // what was computed is written, and nothing is on its way any more.
    void run(RankFigures& figures);
    // Why it has stopped, the same on every rank; empty if it has not.
    const std::string& stopped() const { return stopped_; }
    std::int64_t passes_done() const { return passes_done_; }
    // Over this run's packs, all ranks: tokens scored, and the sum of their NLL. Collective.
    struct Sums {
        std::int64_t scored = 0;
        double nll = 0;
    };
    Sums sums() const;

private:
    struct Flight { // one pass in flight
        PackInputs inputs;
        RowsOnHost results;
        PackBuffers upload;
        std::unique_ptr<device::Event> done;
        const Pack* pack = nullptr;
    };
    void enqueue(std::int64_t pass);
    void fetch(std::int64_t pass, RankFigures& figures);
    void write(const Flight& flight, RankFigures& figures);
    void write_documents(const Flight& flight);
    void look_at_clock(std::int64_t pass, RankFigures& figures);
    void flush(RankFigures& figures);
    void tell_underway() const;
    Flight& flight(std::int64_t pass) { return flights_[static_cast<std::size_t>(pass % 2)]; }

    Parts p_;
    std::shared_ptr<device::Device::Look> look_; // while the main thread waits
    std::array<Flight, 2> flights_;
    RowsOnDevice results_;
    std::int64_t passes_;
    std::int64_t begin_ns_ = 0, last_flush_ns_ = 0, last_told_ns_ = 0;
    std::int64_t last_look_ns_ = 0, flushes_ = 0;
    double slowest_pass_s_ = 0;
    std::int64_t scored_ = 0;
    double nll_ = 0;
    std::string stopped_;
    std::int64_t passes_done_ = 0, passes_begun_ = 0;
};

} // namespace foregather::job
