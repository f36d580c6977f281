// SPDX-License-Identifier: Apache-2.0
// The job plan: predict time and memory of a score or a training run, on a described or a measured
// machine.
#pragma once

#include <foregather/job/job.hpp>

namespace foregather::job {

// As job::run(). One rank computes; no weights are read.
base::Status plan(const deck::Deck& deck, const Start& start);

} // namespace foregather::job
