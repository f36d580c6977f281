// SPDX-License-Identifier: Apache-2.0
// Which variables of the environment override or defeat a key, and which look as if they did. It
// knows what each acts on; what is done about it, output.environment says.
#pragma once

#include <string>
#include <vector>

#include <foregather/backend/backend.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/mesh/topology.hpp>

namespace foregather::job {

// On what of this run a variable could act.
struct EnvironmentFacts {
    std::string kind; // of the backend
    int ranks = 1;
    int threads = 1; // of this rank's compute
    int cores = 1;   // that this rank may use
    bool open_mpi = true;
};

struct EnvironmentSaid {
    std::vector<std::string> overrides; // one line for all variables that do the same to a key
    std::vector<std::string> notes;     // of variables that have no effect here
};

// entries: "NAME=value". Of variables that a launcher sets for its ranks, or that touch no key,
// nothing is said.
EnvironmentSaid look_at_environment(std::vector<std::string> entries,
                                    const EnvironmentFacts& facts);

// Adds what this process's environment does to the backend's overrides and notes. Then throws
// Error(refused), with all overrides, under output.environment = strict. Not collective.
void guard_environment(const deck::Deck& deck, const mesh::Topology& topology,
                       backend::Backend& backend);

} // namespace foregather::job
