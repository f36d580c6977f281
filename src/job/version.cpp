// SPDX-License-Identifier: Apache-2.0
// What this binary is made of.
#include "version.hpp"

#include <mpi.h>

#include <boost/version.hpp>

#include <foregather/backend/backend.hpp>
#include <foregather/io/h5_data.hpp>

namespace foregather::job {
namespace {

std::string dotted(unsigned major, unsigned minor, unsigned patch) {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::string mpi_library() {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) { // legal before MPI_Init
        return "unknown";
    }
    text.resize(static_cast<std::size_t>(length));
    return text.substr(0, text.find(','));
}

} // namespace

std::vector<Version> versions() {
    const char* const revision =
#include <generated/revision.inc>
        ;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    io::check(H5get_libversion(&major, &minor, &patch), "tell its version");
    return {
        {"foregather", "0.1.0"},
        {"git", revision},
        {"compiler", "g++ " __VERSION__},
        {"mpi", mpi_library()},
        {"hdf5", dotted(major, minor, patch)},
        {"boost", dotted(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)},
        {"blas", "OpenBLAS, opened at start"},
        {"cuda", "not built in"},
        {"nccl", "not built in"},
        {"backends", backend::built()},
    };
}

} // namespace foregather::job
