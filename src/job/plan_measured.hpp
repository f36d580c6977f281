// SPDX-License-Identifier: Apache-2.0
// Times that the job bench has measured, brought to other tokens, ranks and links.
#pragma once

#include <memory>

#include <foregather/deck/deck.hpp>

#include "plan_sweep.hpp"

namespace foregather::job {

// Of the file that plan.measured names, of its first transport that moves weights.
//
// Tokens: of the measured numbers of tokens the nearest is taken. Of a use's time, the part that is
// attention's by its share of the operations grows with the pairs of query and key, the rest with
// the tokens. Documents are as long as they were on average, unless plan.document says otherwise.
//
// Ranks: of a collective's time, what the link takes for the bytes that a rank receives grows with
// them, and shrinks with the link's rate where machine.network_bandwidth gives another; the rest
// stays. The link's rate is that of comm.link_rate where one was emulated, else what the collective
// reached, and the rest 0. The optimizer grows with a rank's part.
//
// Throws Error(refused) for a file that is no complete results of a bench of this model, job and
// type.
std::unique_ptr<TimeSource> measured_times(const deck::Deck& deck, const PlannedModel& model);

} // namespace foregather::job
