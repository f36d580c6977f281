// SPDX-License-Identifier: Apache-2.0
// MPI up, MPI down, and whether the launcher and MPI agree on how many ranks there are.
#include <foregather/mesh/session.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <foregather/mesh/mpi.hpp>
#include <foregather/mesh/time_limit.hpp>

namespace foregather::mesh {
namespace {

std::optional<int> number_in_environment(const char* name) {
    const char* text = std::getenv(name);
    int value = 0;
    if (text == nullptr) {
        return std::nullopt;
    }
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    return error == std::errc() && stop == end && value > 0 ? std::optional<int>(value)
                                                            : std::nullopt;
}

std::string compare(const LauncherClaim& claim, int size) {
    const std::string both = std::to_string(size) + (size == 1 ? " rank was" : " ranks were") +
                             " started but " + claim.variable + " announces " +
                             std::to_string(claim.ranks);
    if (size == 1 && claim.ranks > 1 && claim.certain) {
        base::refuse("launcher mismatch: " + both +
                     ". The launcher and this MPI do not speak the same language: with srun use "
                     "--mpi=pmix, or start with mpirun.");
    }
    return claim.ranks == size ? "" : "launcher: " + both + "; is that what you meant?";
}

} // namespace

std::optional<LauncherClaim> launcher_claim() {
    constexpr std::array<const char*, 4> certain = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                                                    "PMI_SIZE", "PMIX_SIZE"};
    // mpirun inside a batch step sets its own size beside the step's: the innermost launcher wins.
    if (const auto inner = number_in_environment("OMPI_COMM_WORLD_SIZE")) {
        return LauncherClaim{"OMPI_COMM_WORLD_SIZE", *inner, true};
    }
    for (const char* name : certain) {
        if (const auto ranks = number_in_environment(name)) {
            return LauncherClaim{name, *ranks, true};
        }
    }
    if (const auto ranks = number_in_environment("SLURM_NTASKS")) {
        return LauncherClaim{"SLURM_NTASKS", *ranks, false};
    }
    return std::nullopt;
}

int rank_of_launcher() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        if (const char* rank = std::getenv(name)) {
            return number_in_environment(name).value_or(std::strcmp(rank, "0") == 0 ? 0 : 1);
        }
    }
    return 0;
}

bool speaks_before_mpi() { return rank_of_launcher() == 0; }

Session::Session(int* argc, char*** argv) : exceptions_at_start_(std::uncaught_exceptions()) {
    const auto claim = launcher_claim(); // before MPI adds variables of its own
    const auto batch = number_in_environment("SLURM_NTASKS");
    int provided = MPI_THREAD_SINGLE;
    const TimeLimit limit("MPI's start", start_limit_s);
    if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
        base::refuse("MPI could not be started");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    try {
        if (provided < MPI_THREAD_MULTIPLE) {
            base::refuse(
                "this MPI gives thread level " + std::to_string(provided) +
                " and MPI_THREAD_MULTIPLE is needed: gathers run on a thread of their own. "
                "Use an MPI built with thread support.");
        }
        int size = 1;
        check(MPI_Comm_size(MPI_COMM_WORLD, &size), "ask for the number of ranks");
        if (claim) {
            warning_ = compare(*claim, size);
        }
        if (warning_.empty() && batch && *batch != size) {
            warning_ = compare(LauncherClaim{"SLURM_NTASKS", *batch, false}, size);
        }
    } catch (...) {
        MPI_Finalize();
        throw;
    }
}

Session::~Session() {
    if (std::uncaught_exceptions() > exceptions_at_start_) {
        return;
    }
    const TimeLimit limit("MPI's end", end_limit_s_);
    if (MPI_Finalize() != MPI_SUCCESS) {
        std::fputs("foregather: MPI_Finalize failed\n", stderr);
    }
}

void Session::abort(int status) {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
}

} // namespace foregather::mesh
