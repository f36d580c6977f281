// SPDX-License-Identifier: Apache-2.0
// The registry of jobs: a name, a function.
#include <foregather/job/job.hpp>

#include <foregather/io/h5.hpp>

#include "bench.hpp"
#include "plan.hpp"
#include "score.hpp"
#include "train.hpp"

namespace foregather::job {

base::Status run(const deck::Deck& deck, const Start& start) {
    const std::string& name = deck.sections().job.name;
    if (name == "score") {
        return score(deck, start);
    }
    if (name == "train") {
        return train(deck, start);
    }
    if (name == "bench") {
        return bench(deck, start);
    }
    if (name == "plan") {
        return plan(deck, start);
    }
    base::refuse(deck.where("job.name") + " = " + name +
                 ": no such job"); // the deck knows only jobs of this list
}

bool stops_in_order(const deck::Deck& deck) {
    const std::string& name = deck.sections().job.name;
    return name == "score" || name == "train";
}

bool can_finalize() noexcept { return !io::close_has_failed(); }

} // namespace foregather::job
