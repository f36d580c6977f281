// SPDX-License-Identifier: Apache-2.0
// Bytes between ranks for the test double of NCCL: MPI's point-to-point messages on the world with
// tags of their own, tested with sleeps, so that a missing peer can be given up. Tests only.
#include "nccl.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include <mpi.h>

namespace foregather::emulation {
namespace {

constexpr int first_tag = 1 << 29; // far above those of programs
constexpr int numbers = 2048;      // of ids of one maker, then again from 0
constexpr auto pause = std::chrono::microseconds(50);

void must(int rc, const char* attempted) {
    if (rc != MPI_SUCCESS) {
        throw std::runtime_error(std::string("MPI failed to ") + attempted);
    }
}

// Buffers stay until MPI is done with them, also if the operation was given up.
struct Transfer {
    std::vector<Message> sends;
    std::vector<Message> receives;
    std::vector<MPI_Request> requests;
};

void keep_for_ever(std::unique_ptr<Transfer> given_up) {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::unique_ptr<Transfer>>;
    const std::lock_guard lock(mutex);
    all->push_back(std::move(given_up));
}

int size_of(const Message& message) {
    if (message.bytes.size() > (std::size_t{1} << 30)) {
        throw std::runtime_error("a message above 1 GiB is not modelled");
    }
    return static_cast<int>(message.bytes.size());
}

bool finish(Transfer& transfer, const std::atomic<bool>& aborted) {
    for (int done = 0;;) {
        must(MPI_Testall(static_cast<int>(transfer.requests.size()), transfer.requests.data(),
                         &done, MPI_STATUSES_IGNORE),
             "exchange");
        if (done != 0 || aborted) {
            return done != 0;
        }
        std::this_thread::sleep_for(pause);
    }
}

// Any rank's first words, as they come.
bool receive_members(std::vector<Member>& members, int tag, const std::atomic<bool>& aborted) {
    for (std::size_t missing = members.size() - 1; missing > 0; --missing) {
        Member member;
        MPI_Status status;
        for (int there = 0; there == 0;) {
            must(MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, &status), "look for one");
            if (there == 0 && aborted) {
                return false;
            }
            if (there == 0) {
                std::this_thread::sleep_for(pause);
            }
        }
        must(MPI_Recv(&member, sizeof member, MPI_BYTE, status.MPI_SOURCE, tag, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE),
             "receive a rank's words");
        const auto rank = static_cast<std::size_t>(member.rank);
        if (member.ranks != static_cast<int>(members.size()) || members[rank].ranks != 0) {
            throw std::runtime_error("ranks disagree on who they are or how many");
        }
        members[rank] = member;
    }
    return true;
}

std::vector<char> bytes_of(const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const char*>(data);
    return {begin, begin + bytes};
}

} // namespace

void require_mpi() {
    int begun = 0;
    int ended = 0;
    int provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (begun == 0 || ended != 0 || MPI_Query_thread(&provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_MULTIPLE) {
        throw std::runtime_error("the double of NCCL needs MPI with MPI_THREAD_MULTIPLE");
    }
}

int mpi_rank() {
    int rank = 0;
    must(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "tell the rank");
    return rank;
}

int tag_of(const UniqueId& id) { return first_tag + (id.root * numbers + id.number % numbers) * 2; }

bool exchange(std::vector<Message>& sends, std::vector<Message>& receives, int tag,
              const std::atomic<bool>& aborted) {
    auto transfer = std::make_unique<Transfer>();
    transfer->sends = std::move(sends);
    transfer->receives = std::move(receives);
    for (Message& message : transfer->receives) {
        must(MPI_Irecv(message.bytes.data(), size_of(message), MPI_BYTE, message.world_rank, tag,
                       MPI_COMM_WORLD, &transfer->requests.emplace_back(MPI_REQUEST_NULL)),
             "post a receive");
    }
    for (Message& message : transfer->sends) {
        must(MPI_Isend(message.bytes.data(), size_of(message), MPI_BYTE, message.world_rank, tag,
                       MPI_COMM_WORLD, &transfer->requests.emplace_back(MPI_REQUEST_NULL)),
             "send");
    }
    if (!finish(*transfer, aborted)) {
        for (std::size_t i = 0; i < transfer->receives.size(); ++i) {
            if (transfer->requests[i] != MPI_REQUEST_NULL) {
                MPI_Cancel(&transfer->requests[i]);
            }
        }
        keep_for_ever(std::move(transfer));
        return false;
    }
    receives = std::move(transfer->receives);
    return true;
}

std::vector<Member> meet(const UniqueId& id, const Member& self, const std::atomic<bool>& aborted) {
    std::vector<Member> members(static_cast<std::size_t>(self.ranks));
    const std::size_t bytes = members.size() * sizeof(Member);
    std::vector<Message> sends;
    std::vector<Message> receives;
    if (self.world_rank != id.root) {
        sends.push_back({id.root, bytes_of(&self, sizeof self)});
        receives.push_back({id.root, std::vector<char>(bytes)});
        if (!exchange(sends, receives, tag_of(id), aborted)) {
            return {};
        }
        std::memcpy(members.data(), receives[0].bytes.data(), bytes);
        return members;
    }
    members[static_cast<std::size_t>(self.rank)] = self;
    if (!receive_members(members, tag_of(id), aborted)) {
        return {};
    }
    for (const Member& member : members) {
        if (member.rank != self.rank) {
            sends.push_back({member.world_rank, bytes_of(members.data(), bytes)});
        }
    }
    return exchange(sends, receives, tag_of(id), aborted) ? members : std::vector<Member>{};
}

} // namespace foregather::emulation
