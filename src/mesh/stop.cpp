// SPDX-License-Identifier: Apache-2.0
// Two handlers and one flag: what may be done in a signal handler is little.
#include <foregather/mesh/stop.hpp>

#include <array>
#include <atomic>
#include <csignal>

#include <foregather/base/error.hpp>

namespace foregather::mesh {
namespace {

constexpr std::array<int, 2> signals = {SIGUSR1, SIGTERM};

std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use it");

extern "C" void note_stop(int signal) {
    int none = 0;
    if (!first_signal.compare_exchange_strong(none, signal)) {
        std::signal(signal, SIG_DFL);
        std::raise(signal); // comes when this handler returns
    }
}

void handle(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART; // reads and writes under way go on
    for (const int signal : signals) {
        if (sigaction(signal, &action, nullptr) != 0) {
            base::fail("the system takes no handler for signal " + std::to_string(signal));
        }
    }
}

} // namespace

StopSignals::StopSignals() {
    first_signal = 0;
    handle(note_stop);
}

StopSignals::~StopSignals() {
    for (const int signal : signals) {
        std::signal(signal, SIG_DFL);
    }
}

void StopSignals::give_up() {
    for (const int signal : signals) {
        std::signal(signal, SIG_DFL);
    }
    if (const int signal = first_signal.exchange(0); signal != 0) {
        std::raise(signal);
    }
}

const char* StopSignals::received() {
    const int signal = first_signal.load();
    return signal == 0 ? nullptr : signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}

} // namespace foregather::mesh
