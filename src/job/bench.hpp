// SPDX-License-Identifier: Apache-2.0
// The job bench: passes of score or train at several depths, against each other, against the same
// work alone, and against the schedule's limit.
#pragma once

#include <foregather/job/job.hpp>

namespace foregather::job {

// Collective. Returns done or not_honoured; throws what job.hpp says.
base::Status bench(const deck::Deck& deck, const Start& start);

} // namespace foregather::job
