// SPDX-License-Identifier: Apache-2.0
// Files that a run writes must not be files that it reads, by whatever name they go.
#pragma once

#include <string>

#include <foregather/deck/deck.hpp>

namespace foregather::job {

// Throws Error(refused), with the keys' places, when output.file, its .part or output.log is the
// deck, a file that the deck names to be read, or another of these, or any of them lies among the
// run's checkpoints. Follows links; a file that is not there yet is compared by the folder that it
// would lie in. Not collective.
void refuse_overlaps(const deck::Deck& deck, const std::string& deck_path);

} // namespace foregather::job
