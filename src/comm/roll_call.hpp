// SPDX-License-Identifier: Apache-2.0
// Who has arrived at a collective that does not end: asked and answered by point-to-point messages
// of ranks that are waiting in one. A rank that answers with an earlier number, or not at all, is
// missing.
#pragma once

#include <string>
#include <vector>

#include <foregather/mesh/mpi.hpp>

namespace foregather::comm {

// This process in messages: "rank 3 (host)", by its number in the whole job, whatever group it acts
// in.
std::string own_name();

class RollCall {
public:
    explicit RollCall(MPI_Comm group); // collective; duplicates

    // Answers the questions that have come, with the number of the collective this rank waits in.
    // Cheap when there are none. Does not block.
    void answer(std::int64_t sequence);

    // Asks all ranks and listens for two seconds, answering meanwhile. Returns "rank 1 (host) did
    // not arrive" with all that are missing, or that all arrived and the transport itself is stuck.
    std::string missing(std::int64_t sequence);

    // After missing(): is this the lowest rank of those that arrived? It alone speaks.
    bool first_to_tell() const { return first_to_tell_; }

    // After missing(): does a rank wait in an earlier collective? It will tell who is missing
    // there, which is what this one waits for as well.
    bool another_waits_before() const { return another_waits_before_; }

private:
    mesh::Comm comm_;
    int rank_ = 0;
    int size_ = 1;
    bool first_to_tell_ = false;
    bool another_waits_before_ = false;
    std::vector<std::string> names_; // of the group's ranks
};

} // namespace foregather::comm
