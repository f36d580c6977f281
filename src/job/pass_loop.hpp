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
    // Collective; blocks. Adds to `figures`.
    void run(RankFigures& figures);

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
    Flight& flight(std::int64_t pass) { return flights_[static_cast<std::size_t>(pass % 2)]; }

    Parts p_;
    std::array<Flight, 2> flights_;
    RowsOnDevice results_;
    std::int64_t passes_;
    std::int64_t begin_ns_ = 0, last_flush_ns_ = 0, last_told_ns_ = 0;
    std::int64_t scored_ = 0;
    double nll_ = 0;
};

} // namespace foregather::job
