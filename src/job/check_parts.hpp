// SPDX-License-Identifier: Apache-2.0
// What --check says of any job: the layout of ranks that it is asked for, memory, the schedule.
#pragma once

#include <string>

#include <foregather/backend/backend.hpp>
#include <foregather/mesh/window.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/schedule/schedule.hpp>

#include "memory_plan.hpp"

namespace foregather::job {

// One line of a table.
std::string row(const std::string& name, const std::string& value, const std::string& detail);

int own_cores();

// What --check takes for the topology: ranks fill nodes one after another.
struct CheckLayout {
    int ranks, per_node, group;
};
CheckLayout lay_out(const deck::Deck& deck, int ranks, int ranks_per_node);
GroupFacts group_facts(const CheckLayout& layout);

// The deck with every key, and what it would run on.
std::string head_text(const deck::Deck& deck, const CheckLayout& layout,
                      const backend::Choice& device, int threads);
// What of the inputs was compared with checksums that they hold. weights: null without such a file;
// null tokens are passed over.
std::string checksums_text(const io::WeightsFile* weights,
                           const std::vector<const io::TokenFile*>& tokens);
// When a run that began now would end, of a deck or batch system that limits it; else nothing.
std::string limit_text(const deck::Deck& deck);
std::string memory_text(const MemoryPlan& plan, const CheckLayout& layout,
                        const backend::Needs& needs);
std::string schedule_text(const schedule::Schedule& schedule, const model::Chain& chain);

// `--check` of each job, as job.hpp says.
std::string check_score(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node);
// Of a plan: the plan itself, for the ranks that its deck lists.
std::string check_plan(const deck::Deck& deck, const std::string& deck_path, int ranks,
                       int ranks_per_node);
std::string check_train(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node);
std::string check_bench(const deck::Deck& deck, const std::string& deck_path, int ranks,
                        int ranks_per_node);

} // namespace foregather::job
