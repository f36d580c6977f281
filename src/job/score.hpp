// SPDX-License-Identifier: Apache-2.0
// Job score: log-probabilities of a token file under sharded weights.
#pragma once

#include <foregather/job/job.hpp>

namespace foregather::job {

// Collective; blocks. See job.hpp for what it returns and throws.
base::Status score(const deck::Deck& deck, const Start& start);

} // namespace foregather::job
