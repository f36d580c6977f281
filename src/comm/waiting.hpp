// SPDX-License-Identifier: Apache-2.0
// How a communicator's thread waits for a request: tests with short sleeps, answers to roll calls,
// and the end of the job when it takes too long.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <foregather/base/types.hpp>

#include "roll_call.hpp"

namespace foregather::comm {

using Clock = std::chrono::steady_clock;

// Calls done() with short sleeps between until it is true: short at first, for ranks of one node;
// then the few hundred microseconds that suit a network, where every test costs and the wire needs
// time anyway. Each call beyond half a second also calls waiting(). Returns false when timeout_s,
// counted from `begin`, is over.
bool wait_until(const std::function<bool()>& done, Clock::time_point begin, double timeout_s,
                const std::function<void()>& waiting);

// Prints that `what` has taken longer than the limit and `missing` ("rank 2 (host) did not
// arrive"), and aborts. With speaks = false another rank tells: waits for it to abort first.
[[noreturn]] void give_up(const std::string& what, double timeout_s, const std::string& missing,
                          bool speaks);

// Sleeps until `received` bytes would have come over a link of that rate since `begin`; 0 = no
// link.
void pace(base::Bytes received, double bytes_per_second, Clock::time_point begin);

} // namespace foregather::comm
