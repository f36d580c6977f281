// SPDX-License-Identifier: Apache-2.0
// What each key of a plan came to.
#pragma once

#include <foregather/deck/ledger.hpp>

#include "plan_report.hpp"

namespace foregather::job {

// Keys that cannot act: told before anything is computed.
void settle_plan_before(deck::Ledger& ledger, const deck::Deck& deck, const PlannedModel& model,
                        const TimeSource& source);
void settle_plan_after(deck::Ledger& ledger, const PlanFacts& facts, bool replaced);

} // namespace foregather::job
