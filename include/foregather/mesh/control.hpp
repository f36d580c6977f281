// SPDX-License-Identifier: Apache-2.0
// The control plane: small typed collectives for the main thread, on a communicator of their own,
// so that they never queue behind a gather. All calls are collective and block, sleeping while they
// wait.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::mesh {

// An error that every rank holds: rank 0 tells it, and all end in order, without an abort.
class AgreedError : public base::Error {
public:
    using base::Error::Error;
};

// Where a rank stands among the exchanges of its Control, which every rank makes in one order.
struct AtExchange {
    std::int64_t number = 0; // of exchanges that this rank has come to
    bool waits = false;      // in one, for others
    double since_s = 0;      // when it began to wait, on the steady clock
    const char* what = "";   // completes "... to": "gather a number from every rank"
};

class Control {
public:
    // Ranks are those of `comm`, which is duplicated.
    explicit Control(MPI_Comm comm);
    ~Control();
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool first() const { return rank_ == 0; }

    std::string broadcast(std::string text) const; // rank 0's text
    std::int64_t broadcast(std::int64_t value) const;
    std::vector<std::string> gather(const std::string& text) const; // on every rank, by rank
    std::vector<std::int64_t> gather(std::int64_t value) const;
    std::vector<double> gather(double value) const;
    // Bytes of any length from every rank, on rank 0 by rank; elsewhere empty.
    std::vector<std::string> gather_to_first(const std::string& bytes) const;
    std::int64_t sum(std::int64_t value) const;
    std::int64_t max(std::int64_t value) const;
    void barrier() const;

    // Runs `work` on every rank. If it throws on any, every rank throws the AgreedError of the
    // lowest such rank, named with its host when it is not rank 0. `work` must not call
    // collectives.
    void together(const std::function<void()>& work) const;

    // Nanoseconds to add to this rank's `now` to get rank 0's: the middle of the quickest of
    // several exchanges with it, one rank after another. Wrong by at most half of that exchange.
    std::int64_t clock_offset_ns(const std::function<std::int64_t()>& now) const;

    // For whoever watches over the main thread; may be called from any thread.
    AtExchange at() const;

    MPI_Comm comm() const { return comm_.handle(); }

private:
    class Waiting;
    struct State;
    void exchange(MPI_Request& request, const char* what) const; // of all ranks

    Comm comm_;
    int rank_ = 0;
    int size_ = 1;
    std::unique_ptr<State> state_;
};

} // namespace foregather::mesh
