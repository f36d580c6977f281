// SPDX-License-Identifier: Apache-2.0
// One table of variables: which key each touches, how, and where it can act at all.
#include "environment.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <utility>

#include <fnmatch.h>
#include <unistd.h>

#include <foregather/base/error.hpp>
#include <foregather/base/printable.hpp>
#include <foregather/mesh/mpi.hpp>

#include "early_stop.hpp"

namespace foregather::job {
namespace {

enum class Acts {
    on_gpu,
    between_gpus,
    between_ranks,
    by_mpich,
    on_files,
    on_threads,
    bound,
    never
};

struct Row {
    const char* pattern; // of the shell, for NAME=value; the first that fits counts
    const char* key;     // nullptr: touches none, nothing is said
    Acts acts = Acts::never;
    const char* what = ""; // if it acts; why it does not, where it never does
};

constexpr const char* how_gathers_travel = "MPI obeys it in how gathers and reductions travel";
constexpr const char* how_files_are_written = "MPI-IO obeys it in how files are read and written";
constexpr const char* streams_wait =
    "gathers that are issued ahead may not run beside compute, or not in their order";
constexpr const char* which_gpu =
    "it decides which GPUs are seen and numbered how, and rank L of a node takes the L-th";
constexpr const char* one_thread =
    "products are kept to one thread, on each of the threads of device.threads";

constexpr std::array table = {
    // Where something is installed, and what images of containers say of it.
    Row{"*_HOME=/*", nullptr},
    Row{"*_ROOT=/*", nullptr},
    Row{"*_DIR=/*", nullptr},
    Row{"NCCL_VERSION=*", nullptr},

    Row{"NCCL_DEBUG*", nullptr},
    Row{"NCCL_RUNTIME_CONNECT=0", nullptr}, // set by the NCCL transport itself
    Row{"NCCL_COMM_BLOCKING=*", "comm.timeout", Acts::between_gpus,
        "a set-up of communicators that hangs may not be ended"},
    Row{"NCCL_LAUNCH_MODE=*", "fsdp.forward_prefetch", Acts::between_gpus, streams_wait},
    Row{"NCCL_*CTAS=*", "fsdp.forward_prefetch", Acts::between_gpus,
        "it decides how much of a GPU gathers take from compute"},
    Row{"NCCL_*NCHANNELS*=*", "fsdp.forward_prefetch", Acts::between_gpus,
        "it decides how much of a GPU gathers take from compute"},
    Row{"NCCL_*", "comm.transport", Acts::between_gpus,
        "NCCL obeys it in how gathers and reductions travel"},

    Row{"CUDA_VISIBLE_DEVICES=*", "device.kind", Acts::on_gpu, which_gpu},
    Row{"CUDA_DEVICE_ORDER=*", "device.kind", Acts::on_gpu, which_gpu},
    Row{"CUDA_DEVICE_MAX_CONNECTIONS=*", "fsdp.forward_prefetch", Acts::on_gpu, streams_wait},
    Row{"CUDA_LAUNCH_BLOCKING=0", nullptr},
    Row{"CUDA_LAUNCH_BLOCKING=*", "fsdp.forward_prefetch", Acts::on_gpu,
        "every launch waits for its end, so nothing overlaps"},

    Row{"OMPI_MCA_btl_tcp_if_*", nullptr}, // which of several networks
    Row{"OMPI_MCA_btl[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_pml[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_mtl[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_bml[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_coll[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_osc[=_]*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"OMPI_MCA_io[=_]*", "output.file", Acts::on_files, how_files_are_written},
    Row{"OMPI_MCA_fs[=_]*", "output.file", Acts::on_files, how_files_are_written},
    Row{"OMPI_MCA_fcoll[=_]*", "output.file", Acts::on_files, how_files_are_written},
    Row{"OMPI_MCA_fbtl[=_]*", "output.file", Acts::on_files, how_files_are_written},
    Row{"ROMIO_*", "output.file", Acts::on_files, how_files_are_written},
    Row{"OMPI_MCA_hwloc_base_binding_policy=*", "device.threads", Acts::bound,
        "the rank's threads share fewer cores than there are threads"},
    Row{"UCX_LOG_*", nullptr},
    Row{"UCX_*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"FI_LOG_*", nullptr},
    Row{"FI_*", "comm.transport", Acts::between_ranks, how_gathers_travel},
    Row{"MPICH_*", "comm.transport", Acts::by_mpich, how_gathers_travel},
    Row{"MPIR_CVAR_*", "comm.transport", Acts::by_mpich, how_gathers_travel},

    Row{"*_NUM_THREADS=1", nullptr}, // as it is in any case
    Row{"OMP_NUM_THREADS=*", "device.threads", Acts::never, one_thread},
    Row{"OPENBLAS_NUM_THREADS=*", "device.threads", Acts::never, one_thread},
    Row{"GOTO_NUM_THREADS=*", "device.threads", Acts::never, one_thread},
    Row{"BLIS_NUM_THREADS=*", "device.threads", Acts::never, one_thread},
    Row{"BLIS_[IJP][CR]_NT=*", "device.threads", Acts::never, one_thread},
    Row{"MKL_NUM_THREADS=*", "device.threads", Acts::never, one_thread},
    Row{"OMP_PROC_BIND=[fF]*", nullptr},
    Row{"OMP_PROC_BIND=*", "device.threads", Acts::on_threads,
        "OpenMP's library may bind all threads of a rank to one core"},
    Row{"OMP_PLACES=*", "device.threads", Acts::on_threads,
        "OpenMP's library may bind all threads of a rank to one core"},
    Row{"GOMP_CPU_AFFINITY=*", "device.threads", Acts::on_threads,
        "OpenMP's library may bind all threads of a rank to one core"},

    Row{"HDF5_USE_FILE_LOCKING=[fF0]*", "output.existing", Acts::never,
        "an unfinished file of another run is known by a lock of its own; HDF5 locks no file"},
};

// "" if a row's variables act in this run; otherwise why they do not.
std::string why_not(const Row& row, const EnvironmentFacts& facts) {
    const bool gpu = facts.kind == "cuda";
    switch (row.acts) {
    case Acts::on_gpu:
        return gpu ? "" : "device.kind is " + facts.kind + " in this run";
    case Acts::between_gpus:
        return !gpu              ? "device.kind is " + facts.kind + " in this run"
               : facts.ranks > 1 ? ""
                                 : "there is one rank";
    case Acts::between_ranks:
        return facts.ranks > 1 ? "" : "there is one rank";
    case Acts::by_mpich:
        return facts.open_mpi ? "this MPI is Open MPI" : facts.ranks > 1 ? "" : "there is one rank";
    case Acts::on_threads:
        return gpu                 ? "device.kind is cuda in this run"
               : facts.threads > 1 ? ""
                                   : "a rank computes on one thread";
    case Acts::on_files:
    case Acts::bound:
        return "";
    case Acts::never:
        return row.what;
    }
    return "";
}

const Row* row_of(const std::string& entry) {
    const auto* const row = std::find_if(table.begin(), table.end(), [&](const Row& r) {
        return fnmatch(r.pattern, entry.c_str(), 0) == 0;
    });
    return row == table.end() || row->key == nullptr ? nullptr : row;
}

// Slurm grants a job its GPUs by setting CUDA_VISIBLE_DEVICES itself, beside these.
bool slurm_grants_gpus(const std::vector<std::string>& entries) {
    const auto has = [&](const std::string& name) {
        return std::any_of(entries.begin(), entries.end(),
                           [&](const std::string& e) { return e.find(name + "=") == 0; });
    };
    return has("SLURM_JOB_ID") && (has("SLURM_STEP_GPUS") || has("SLURM_JOB_GPUS"));
}

bool runs_open_mpi() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    mesh::check(MPI_Get_library_version(text.data(), &length), "ask which MPI this is");
    return std::string(text.data()).find("Open MPI") != std::string::npos;
}

} // namespace

EnvironmentSaid look_at_environment(std::vector<std::string> entries,
                                    const EnvironmentFacts& facts) {
    std::sort(entries.begin(), entries.end());
    struct Group {
        std::string names;
        bool several = false;
    };
    std::map<std::pair<std::string, std::string>, Group> acting, idle; // by key and words
    std::string given;
    const bool granted = slurm_grants_gpus(entries);
    for (const std::string& entry : entries) {
        const Row* row = row_of(entry);
        if (granted && facts.kind == "cuda" && entry.find("CUDA_VISIBLE_DEVICES=") == 0) {
            given = base::printable(entry) +
                    " is what Slurm has granted: rank L of a node takes the L-th";
            continue;
        }
        if (row == nullptr || (row->acts == Acts::bound && facts.threads <= facts.cores)) {
            continue;
        }
        const std::string idle_why = why_not(*row, facts);
        Group& group =
            idle_why.empty() ? acting[{row->key, row->what}] : idle[{row->key, idle_why}];
        group.several = !group.names.empty();
        group.names += (group.several ? ", " : "") + base::printable(entry);
    }
    EnvironmentSaid said;
    for (const auto& [about, group] : acting) {
        said.overrides.push_back(group.names + (group.several ? " override " : " overrides ") +
                                 about.first + ": " + about.second);
    }
    for (const auto& [about, group] : idle) {
        said.notes.push_back(group.names + (group.several ? " have" : " has") + " no effect on " +
                             about.first + ": " + about.second);
    }
    if (!given.empty()) {
        said.notes.push_back(given);
    }
    return said;
}

void guard_environment(const deck::Deck& deck, const mesh::Topology& topology,
                       backend::Backend& backend) {
    std::vector<std::string> entries;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        entries.emplace_back(*entry);
    }
    const auto own = static_cast<std::size_t>(topology.rank());
    const EnvironmentSaid said = look_at_environment(
        std::move(entries), {backend.kind(), topology.size(), backend.device().facts().threads,
                             topology.places()[own].cores, runs_open_mpi()});
    std::vector<std::string>& overrides = backend.overrides;
    overrides.insert(overrides.end(), said.overrides.begin(), said.overrides.end());
    backend.notes.insert(backend.notes.end(), said.notes.begin(), said.notes.end());
    if (const auto limit = EarlyStop::limit_of(deck, std::time(nullptr)); !limit.note.empty()) {
        backend.notes.push_back(limit.note);
    }
    if (overrides.empty() || deck.sections().output.environment != "strict") {
        return;
    }
    std::string text = deck.where("output.environment") + " = strict:";
    for (const std::string& line : overrides) {
        text += "\n  " + line;
    }
    base::refuse(text + "\n  unset these, or set output.environment = warn");
}

} // namespace foregather::job
