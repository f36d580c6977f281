// SPDX-License-Identifier: Apache-2.0
// Return codes, communicators and patient waiting.
#include <foregather/mesh/mpi.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <unistd.h>

namespace foregather::mesh {

void check(int rc, const std::string& attempted, base::Where where) {
    if (rc == MPI_SUCCESS) {
        return;
    }
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(rc, text.data(), &length) != MPI_SUCCESS) {
        length = 0;
    }
    throw base::Error(base::Status::failed,
                      "MPI failed to " + attempted + ": " +
                          std::string(text.data(), static_cast<std::size_t>(length)) + " (code " +
                          std::to_string(rc) + ")",
                      where);
}

std::string library_version() {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    check(MPI_Get_library_version(text.data(), &length), "tell its version");
    text.resize(static_cast<std::size_t>(length));
    return text.substr(0, text.find(','));
}

int rank_in(MPI_Comm comm) {
    int rank = 0;
    check(MPI_Comm_rank(comm, &rank), "ask for a rank");
    return rank;
}

int size_of(MPI_Comm comm) {
    int size = 0;
    check(MPI_Comm_size(comm, &size), "ask for a group's size");
    return size;
}

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

void CommCloser::operator()(MPI_Comm comm) const noexcept {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0 &&
        std::uncaught_exceptions() == 0) { // a free is collective: never while ranks part ways
        MPI_Comm_free(&comm);
    }
}

Comm duplicate(MPI_Comm comm, const std::string& purpose) {
    MPI_Comm copy = MPI_COMM_NULL;
    check(MPI_Comm_dup(comm, &copy), "duplicate a communicator for " + purpose);
    check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "set the error handler of " + purpose);
    return Comm(copy);
}

void wait_politely(MPI_Request& request, const std::string& attempted) {
    auto pause = std::chrono::microseconds(20);
    for (int done = 0;;) {
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), attempted);
        if (done != 0) {
            return;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
}

} // namespace foregather::mesh
