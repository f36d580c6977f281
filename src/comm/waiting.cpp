// SPDX-License-Identifier: Apache-2.0
// Patience, and its end.
#include "waiting.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

#include <foregather/base/moves.hpp>
#include <foregather/mesh/at_work.hpp>
#include <foregather/mesh/session.hpp>

namespace foregather::comm {

using namespace std::chrono_literals;

namespace {

// " (step 7, reduce stream)": what this process has in hand, and where `what` runs.
std::string whereabouts(const std::string& what) {
    const auto is = [&](const char* kind) { return what.find(kind) != std::string::npos; };
    const char* stream = is("gather of ") ? "gather" : is("reduction of ") ? "reduce" : "compute";
    const std::string work = mesh::AtWork::of_process();
    return " (" + work + (work.empty() ? "" : ", ") + stream + " stream)";
}

} // namespace

bool wait_until(const std::function<bool()>& done, Clock::time_point begin, double timeout_s,
                const std::function<void()>& waiting) {
    const base::MayLast may_last;
    auto pause = 20us;
    auto last = Clock::now();
    while (!done()) {
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(320));
        const auto now = Clock::now();
        if (now - last > 1s) {
            begin += now - last; // this process was stopped, not the one it waits for
        }
        last = now;
        const std::chrono::duration<double> waited = now - begin;
        if (waited > 500ms) {
            waiting();
        }
        if (waited.count() > timeout_s) {
            return false;
        }
    }
    return true;
}

void give_up(const std::string& what, double timeout_s, const std::string& missing, bool speaks) {
    if (speaks) {
        std::fprintf(
            stderr,
            "foregather: %s: the %s%s has taken longer than comm.timeout = %g s; %s. Look "
            "at %s, or raise comm.timeout if they are only slow.\n",
            own_name().c_str(), what.c_str(), whereabouts(what).c_str(), timeout_s, missing.c_str(),
            missing.starts_with("all ranks") ? "the links between them" : "those ranks' hosts");
    } else {
        std::this_thread::sleep_for(5s);
    }
    mesh::Session::abort(static_cast<int>(base::Status::failed));
}

void pace(base::Bytes received, double bytes_per_second, Clock::time_point begin) {
    if (bytes_per_second > 0) {
        const std::chrono::duration<double> wire(static_cast<double>(received.count) /
                                                 bytes_per_second);
        std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(wire));
    }
}

} // namespace foregather::comm
