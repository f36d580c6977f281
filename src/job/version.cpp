// SPDX-License-Identifier: Apache-2.0
// What this binary is made of.
#include "version.hpp"

#include <boost/version.hpp>

#include <foregather/backend/backend.hpp>
#include <foregather/io/h5.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::job {
namespace {

std::string dotted(unsigned major, unsigned minor, unsigned patch) {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

} // namespace

std::vector<Version> versions() {
    const char* const revision =
#include <generated/revision.inc>
        ;
    const backend::CudaVersions cuda = backend::cuda_built_with();
    return {
        {"foregather", "0.1.0"},
        {"git", revision},
        {"compiler", "g++ " __VERSION__},
        {"mpi", mesh::library_version()},
        {"hdf5", io::library_version()},
        {"boost", dotted(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)},
        {"blas", "OpenBLAS, opened at start"},
        {"cuda", cuda.cuda},
        {"nccl", cuda.nccl},
        {"backends", backend::built()},
    };
}

} // namespace foregather::job
