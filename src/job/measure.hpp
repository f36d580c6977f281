// SPDX-License-Identifier: Apache-2.0
// What a rank reads off its parts when a run is over.
#pragma once

#include <foregather/backend/backend.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/mesh/watch.hpp>
#include <foregather/schedule/source.hpp>

#include "figures.hpp"

namespace foregather::job {

struct Measured {
    backend::Backend& backend;
    const schedule::TimedSource& source;
    const comm::Communicator* communicator; // nullptr: nothing is gathered
    device::Stream& compute;
    std::int64_t bytes_read; // of weights, from files
    const io::ResultsFile& results;
    const mesh::Watch& watch;
    double product_s_before = 0; // that the kernels had computed before the run
    bool offload = false;
};

// Adds to what the pass loop has counted.
void measure(RankFigures& figures, const Measured& run);

} // namespace foregather::job
