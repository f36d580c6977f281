// SPDX-License-Identifier: Apache-2.0
// Questions have tag 1, answers tag 2; both carry one number.
#include "roll_call.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <foregather/mesh/control.hpp>

namespace foregather::comm {
namespace {

using namespace std::chrono_literals;
constexpr int question = 1;
constexpr int reply = 2;

} // namespace

std::string own_name() {
    int rank = 0;
    mesh::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "ask for a rank");
    return "rank " + std::to_string(rank) + " (" + mesh::host_name() + ")";
}

RollCall::RollCall(MPI_Comm group) : comm_(mesh::duplicate(group, "the roll call")) {
    mesh::check(MPI_Comm_rank(comm_.handle(), &rank_), "ask for a rank");
    mesh::check(MPI_Comm_size(comm_.handle(), &size_), "ask for a group's size");
    names_ = mesh::Control(group).gather(own_name());
}

void RollCall::answer(std::int64_t sequence) {
    for (;;) {
        int there = 0;
        MPI_Status status;
        mesh::check(MPI_Iprobe(MPI_ANY_SOURCE, question, comm_.handle(), &there, &status),
                    "look for a question");
        if (there == 0) {
            return;
        }
        std::int64_t asked = 0;
        mesh::check(MPI_Recv(&asked, 1, MPI_INT64_T, status.MPI_SOURCE, question, comm_.handle(),
                             MPI_STATUS_IGNORE),
                    "receive a question");
        // Eight bytes go eagerly: this returns although the other side has not asked to receive
        // yet.
        mesh::check(MPI_Send(&sequence, 1, MPI_INT64_T, status.MPI_SOURCE, reply, comm_.handle()),
                    "answer a question");
    }
}

std::string RollCall::missing(std::int64_t sequence) {
    std::vector<std::int64_t> at(static_cast<std::size_t>(size_), -1);
    at[static_cast<std::size_t>(rank_)] = sequence;
    for (int r = 0; r < size_; ++r) {
        if (r != rank_) {
            mesh::check(MPI_Send(&sequence, 1, MPI_INT64_T, r, question, comm_.handle()),
                        "ask who has arrived");
        }
    }
    for (const auto end = std::chrono::steady_clock::now() + 2s;
         std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(5ms)) {
        answer(sequence);
        int there = 0;
        MPI_Status status;
        mesh::check(MPI_Iprobe(MPI_ANY_SOURCE, reply, comm_.handle(), &there, &status),
                    "look for an answer");
        if (there != 0) {
            std::int64_t number = 0;
            mesh::check(MPI_Recv(&number, 1, MPI_INT64_T, status.MPI_SOURCE, reply, comm_.handle(),
                                 MPI_STATUS_IGNORE),
                        "receive an answer");
            at[static_cast<std::size_t>(status.MPI_SOURCE)] = number;
        }
    }
    std::string names;
    int first = size_;
    for (int r = size_ - 1; r >= 0; --r) {
        const auto i = static_cast<std::size_t>(r);
        if (at[i] >= sequence) {
            first = r;
        } else {
            names = names_[i] + (names.empty() ? "" : ", ") + names;
        }
    }
    first_to_tell_ = first == rank_;
    another_waits_before_ = std::any_of(at.begin(), at.end(), [&](std::int64_t number) {
        return number >= 0 && number < sequence;
    });
    return names.empty() ? "all ranks arrived, so the transport itself is stuck"
                         : names + " did not arrive";
}

} // namespace foregather::comm
