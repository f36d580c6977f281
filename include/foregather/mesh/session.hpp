// SPDX-License-Identifier: Apache-2.0
// The life of MPI in this process: started with MPI_THREAD_MULTIPLE or refused, finalized unless an
// exception is on its way. It also compares what the launcher announced with what MPI came up with.
#pragma once

#include <optional>
#include <string>

namespace foregather::mesh {

// What the environment says about the number of ranks, before MPI is started.
struct LauncherClaim {
    std::string variable; // e.g. "SLURM_STEP_NUM_TASKS"
    int ranks = 0;
    bool certain = false; // false: a batch allocation's size, which a job need not fill
};

// The strongest claim in the environment: SLURM_STEP_NUM_TASKS, OMPI_COMM_WORLD_SIZE, PMI_SIZE,
// PMIX_SIZE (certain), then SLURM_NTASKS (a hint).
std::optional<LauncherClaim> launcher_claim();

// This process's number by the launcher, before MPI is up; 0 without a launcher.
int rank_of_launcher();

// Does this process speak for the job before MPI is up? True for the launcher's rank 0, and without
// a launcher.
bool speaks_before_mpi();

class Session {
public:
    // Starts MPI. Throws Error(refused) when MPI_THREAD_MULTIPLE is not given, or when one rank
    // came up where the launcher announced several (srun without --mpi=pmix starts lonely jobs).
    // Blocks until all ranks are there; ends the process where that takes start_limit_s.
    Session(int* argc, char*** argv);
    // Finalizes, unless the stack is unwinding: a finalize would wait for ranks that never come.
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // How long the other ranks may take to come to the end (s), once that is known: their stops in
    // there are seen by nobody else. Until then start_limit_s, as for the start.
    void end_within(double seconds) { end_limit_s_ = seconds; }
    static constexpr double start_limit_s = 300;

    // A launcher's claim that differs from the size without being certain; empty if none.
    const std::string& warning() const { return warning_; }

    // Ends every rank of the job at once with this exit status. Never returns.
    [[noreturn]] static void abort(int status);

private:
    int exceptions_at_start_;
    double end_limit_s_ = start_limit_s;
    std::string warning_;
};

} // namespace foregather::mesh
