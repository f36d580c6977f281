// SPDX-License-Identifier: Apache-2.0
// A child per try: it tells its verdict through a pipe, in a word, and leaves without the tidying
// that belongs to its parent.
#include "trial.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <foregather/base/error.hpp>

namespace foregather::fuzz {

namespace {

constexpr int seconds_to_end = 60;

void say(int to, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(to, text.data(), text.size());
        if (n < 0 && errno != EINTR) {
            ::_exit(3);
        }
        text.remove_prefix(n < 0 ? 0 : static_cast<std::size_t>(n));
    }
}

[[noreturn]] void be_the_child(int to, const std::function<std::string()>& work) {
    ::dup2(to, STDOUT_FILENO); // what a sanitizer prints is told too
    ::dup2(to, STDERR_FILENO);
    try {
        const std::string text = work();
        say(to, "\naccepted\n" + text);
    } catch (const base::Error& error) {
        const bool refused = error.status() == base::Status::refused;
        say(to, std::string(refused ? "\nrefused\n" : "\nbroken\n") + error.what());
    } catch (const std::exception& error) {
        say(to, std::string("\nbroken\nan exception of the library's: ") + error.what());
    }
    ::_exit(0);
}

Outcome judged(const std::string& said, int status) {
    const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    for (const auto& [word, kind] : {std::pair{"\naccepted\n", Outcome::Kind::accepted},
                                     std::pair{"\nrefused\n", Outcome::Kind::refused}}) {
        const std::string_view mark = word;
        if (ended && said.starts_with(mark)) {
            return {kind, said.substr(mark.size())};
        }
    }
    return {Outcome::Kind::broken, "wait status " + std::to_string(status) + "\n" + said};
}

int number_of(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr || *text == '\0' ? otherwise : std::stoi(text);
}

} // namespace

Outcome attempt(const std::function<std::string()>& work) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) {
        throw std::runtime_error("no pipe");
    }
    const pid_t child = ::fork();
    if (child < 0) {
        throw std::runtime_error("no child process");
    }
    if (child == 0) {
        ::close(ends[0]);
        be_the_child(ends[1], work);
    }
    ::close(ends[1]);
    const auto begin = std::chrono::steady_clock::now();
    std::string said;
    std::array<char, 4096> buffer{};
    bool hung = false;
    for (;;) {
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - begin);
        pollfd from{ends[0], POLLIN, 0};
        const int left = 1000 * seconds_to_end - static_cast<int>(waited.count());
        if (left <= 0 || ::poll(&from, 1, left) == 0) {
            hung = true;
            ::kill(child, SIGKILL);
            break;
        }
        const ssize_t n = ::read(ends[0], buffer.data(), buffer.size());
        if (n == 0) {
            break;
        }
        said.append(buffer.data(), n < 0 ? 0 : static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return hung ? Outcome{Outcome::Kind::hung, said} : judged(said, status);
}

int mutations() { return number_of("MUTATIONS", 300); }
unsigned first_seed() { return static_cast<unsigned>(number_of("SEED", 1)); }

} // namespace foregather::fuzz
