// SPDX-License-Identifier: Apache-2.0
// Jobs by name: what main.cpp calls once the deck is parsed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/deck/deck.hpp>

namespace foregather::job {

// What a job must know of how it was started.
struct Start {
    std::string deck_name;
    std::vector<std::string> command_line;
    std::string launcher_warning; // from mesh::Session; empty if none
    std::int64_t started_unix_s = 0;
    std::chrono::steady_clock::time_point begin; // of main()
};

// Runs the job that the deck names, on all ranks. Collective; blocks. Returns done, not_honoured or
// stopped; throws base::Error otherwise, mesh::AgreedError when every rank holds it.
base::Status run(const deck::Deck& deck, const Start& start);

// Does the job that the deck names end in order when it is asked to stop early? Others end at a
// signal as any program does.
bool stops_in_order(const deck::Deck& deck);

// After run() has thrown: whether this process may finalize MPI. Not where a file could not be
// closed: HDF5, which comes down with MPI, would crash on what is left of it.
bool can_finalize() noexcept;

// `--check`: the resolved deck, the units, the memory and disk plan for that many ranks, as text.
// Needs no MPI and reads no weights. Throws base::Error(refused).
std::string check(const deck::Deck& deck, const std::string& deck_path, int ranks,
                  int ranks_per_node);

// `--self-test`: tries MPI, HDF5, products, kernels and a tiny job of scores, each told in a line
// on stdout, in a temporary folder that it removes. Collective; blocks. Returns done or failed;
// ends the job where one rank alone has failed.
base::Status self_test(const Start& start);

// `--version`.
std::string version_text();

} // namespace foregather::job
