// SPDX-License-Identifier: Apache-2.0
// One message to each other rank, with the cause; it is the cause that all then tell.
#include "alarm.hpp"

#include "../roll_call.hpp"

namespace foregather::comm {
namespace {

constexpr int tag = 7;
constexpr std::size_t most_text = 4000; // goes eagerly: whoever sends does not wait

} // namespace

void Alarm::tell(const std::string& why) const {
    const std::string text = why.substr(0, most_text);
    for (int r = 0; r < control_.size(); ++r) {
        if (r != control_.rank()) {
            mesh::check(MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, r, tag,
                                 control_.comm()),
                        "tell other ranks of a failure");
        }
    }
}

void Alarm::look() const {
    int there = 0;
    MPI_Status status;
    mesh::check(MPI_Iprobe(MPI_ANY_SOURCE, tag, control_.comm(), &there, &status),
                "look for another rank's failure");
    if (there == 0) {
        return;
    }
    int n = 0;
    mesh::check(MPI_Get_count(&status, MPI_CHAR, &n), "ask how long a message is");
    std::string text(static_cast<std::size_t>(n), '\0');
    mesh::check(MPI_Recv(text.data(), n, MPI_CHAR, status.MPI_SOURCE, tag, control_.comm(),
                         MPI_STATUS_IGNORE),
                "receive another rank's failure");
    throw mesh::AgreedError(base::Status::failed, text);
}

void Alarm::together(const std::function<void()>& work) {
    std::string told; // by another rank, or by this one
    try {
        work();
    } catch (const mesh::AgreedError& error) {
        told = error.what();
    } catch (const std::exception& error) {
        told = own_name() + ": " + error.what();
        tell(told);
    }
    // A rank that was done before the failure learns of it here.
    for (const std::string& text : control_.gather(told)) {
        if (!text.empty()) {
            throw mesh::AgreedError(base::Status::failed, text);
        }
    }
}

} // namespace foregather::comm
