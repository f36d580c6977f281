// SPDX-License-Identifier: Apache-2.0
// The one exception type of the program, with the exit status it leads to and the place it was
// raised. It does not decide who prints: main.cpp does.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace foregather::base {

// Exit statuses, the same on every rank.
enum class Status : int {
    done = 0,
    failed = 1,       // failed while running
    refused = 2,      // refused before any work: deck, files, environment
    not_honoured = 3, // ran, but something the deck asked for was not honoured
    stopped = 75,     // stopped early, in order: submit again to go on
};

// A source position, filled in by the compiler through default arguments.
struct Where {
    const char* file = "";
    int line = 0;
    const char* function = "";

    static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                const char* function = __builtin_FUNCTION()) {
        return Where{file, line, function};
    }
};

// A failure in one sentence or several lines: what was attempted, on what, what to do.
class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& message, Where where = Where::here())
        : std::runtime_error(message), status_(status), where_(where) {}

    Status status() const { return status_; }
    const Where& where() const { return where_; }

private:
    Status status_;
    Where where_;
};

// Throws Error with Status::refused: nothing has been done yet, and the user can mend the input.
[[noreturn]] inline void refuse(const std::string& message, Where where = Where::here()) {
    throw Error(Status::refused, message, where);
}

// Throws Error with Status::failed: work had begun.
[[noreturn]] inline void fail(const std::string& message, Where where = Where::here()) {
    throw Error(Status::failed, message, where);
}

// Owner of a C handle: closes it once, when the owner goes. Closer is a stateless callable
// `void(Handle) noexcept`; `Closer::null()` is the value that owns nothing.
template <class Handle, class Closer>
class Unique {
public:
    Unique() = default;
    explicit Unique(Handle handle) : handle_(handle) {}
    Unique(Unique&& other) noexcept : handle_(std::exchange(other.handle_, Closer::null())) {}
    Unique& operator=(Unique&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, Closer::null());
        }
        return *this;
    }
    Unique(const Unique&) = delete;
    Unique& operator=(const Unique&) = delete;
    ~Unique() { reset(); }

    Handle handle() const { return handle_; }
    explicit operator bool() const { return handle_ != Closer::null(); }
    void reset() noexcept {
        if (handle_ != Closer::null()) {
            Closer{}(std::exchange(handle_, Closer::null()));
        }
    }

private:
    Handle handle_ = Closer::null();
};

} // namespace foregather::base
