// SPDX-License-Identifier: Apache-2.0
// Job train: forward, backward and AdamW under sharded weights, with checkpoints.
#pragma once

#include <foregather/job/job.hpp>

namespace foregather::job {

// Collective; blocks. See job.hpp for what it returns and throws.
base::Status train(const deck::Deck& deck, const Start& start);

} // namespace foregather::job
