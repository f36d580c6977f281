// SPDX-License-Identifier: Apache-2.0
// output.existing = resume: whether what an earlier run left belongs to this one, and what is left
// to do. What cannot change a score may change from start to start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/io/earlier.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/mesh/control.hpp>

#include "identity.hpp"
#include "inputs.hpp"

namespace foregather::job {

// What every run stores at its start. For the rank that knows Inputs::tokens_sha256.
std::vector<io::IdentityRow> identity_of(const deck::Deck& deck, const Inputs& inputs,
                                         const Machine& machine);

struct Resume {
    enum class State : std::int64_t {
        anew,     // nothing is there to go on with
        go_on,    // with PATH.part
        published // the results are there, or were only to be renamed, which is done
    };
    State state = State::anew;
    std::vector<std::uint8_t> packs_done; // go_on: [packs], 1: the scores are in the file
    std::vector<io::RunStart> starts;     // go_on: earlier ones
    std::vector<std::string> notes;       // to be told
    // published: how the run that made the results ended, and why not well
    base::Status ended = base::Status::done;
    std::string why;
};
// Looks at what is there; of use with output.existing = resume alone. Throws Error(refused), with
// all differences, when it was made by another run. publish: rename a PATH.part that is complete.
// Not collective: for one rank.
Resume look_for_earlier(const deck::Deck& deck, const io::Output& output,
                        const std::vector<io::IdentityRow>& identity, std::int64_t packs,
                        bool publish);

// What a run says whose results are whole but for these.
std::string not_finite_text(std::int64_t documents, const std::string& path);

// Gives rank 0's, but starts and notes, to all. Collective.
void share(Resume& resume, const mesh::Control& control);
// Packs whose scores are not in the file, in order.
std::vector<std::int64_t> packs_to_do(const Resume& resume, std::int64_t packs);

} // namespace foregather::job
