// SPDX-License-Identifier: Apache-2.0
// One try of the code under test in a process of its own: what it made of an input, or that it
// crashed or hung. What is tried is decided by the tests.
#pragma once

#include <functional>
#include <string>

namespace foregather::fuzz {

struct Outcome {
    enum class Kind {
        accepted, // the work returned
        refused,  // it threw Error(refused)
        broken,   // it threw anything else, crashed, or a sanitizer ended it
        hung,     // it did not end in time
    };
    Kind kind;
    std::string text; // what the work returned, the refusal, or what was printed
};

// Runs `work` in a child process and waits for it; blocks for at most a minute.
Outcome attempt(const std::function<std::string()>& work);

// How many mutations in all, from the environment (MUTATIONS), and the first seed (SEED).
int mutations();
unsigned first_seed();

} // namespace foregather::fuzz
