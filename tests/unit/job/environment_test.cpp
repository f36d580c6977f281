// SPDX-License-Identifier: Apache-2.0
// What is said of variables: which override a key on which kind of run, and which say nothing.
// That a job tells it, or refuses, is tested with the whole program.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "../../../src/job/environment.hpp"

using namespace foregather;

namespace {

const job::EnvironmentFacts on_host{"host", 2, 4, 2, true};
const job::EnvironmentFacts on_gpus{"cuda", 2, 1, 2, true};

struct Case {
    const char* name;
    const char* key; // "": nothing is said
    bool host, gpus; // does it act there?
};

class Variable : public testing::TestWithParam<Case> {};

void expect_said(const Case& c, const job::EnvironmentFacts& facts, bool acts) {
    const job::EnvironmentSaid said = job::look_at_environment({c.name}, facts);
    if (*c.key == '\0') {
        EXPECT_TRUE(said.overrides.empty() && said.notes.empty()) << c.name;
        return;
    }
    const std::string begin =
        std::string(c.name) + (acts ? " overrides " : " has no effect on ") + c.key + ": ";
    const auto& where = acts ? said.overrides : said.notes;
    ASSERT_EQ(where.size(), 1U) << c.name << " on " << facts.kind;
    EXPECT_EQ(where[0].substr(0, begin.size()), begin);
    EXPECT_GT(where[0].size(), begin.size() + 10) << "no reason";
    EXPECT_TRUE((acts ? said.notes : said.overrides).empty());
}

TEST_P(Variable, IsNamedWithItsKeyWhereItActsAndWhereItDoesNot) {
    expect_said(GetParam(), on_host, GetParam().host);
    expect_said(GetParam(), on_gpus, GetParam().gpus);
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Variable,
    testing::Values(Case{"NCCL_PROTO=Simple", "comm.transport", false, true},
                    Case{"NCCL_OF_TOMORROW=1", "comm.transport", false, true},
                    Case{"NCCL_COMM_BLOCKING=1", "comm.timeout", false, true},
                    Case{"NCCL_MAX_CTAS=4", "fsdp.forward_prefetch", false, true},
                    Case{"NCCL_LAUNCH_MODE=GROUP", "fsdp.forward_prefetch", false, true},
                    Case{"NCCL_DEBUG=INFO", "", false, false},
                    Case{"NCCL_HOME=/opt/nccl", "", false, false},
                    Case{"CUDA_DEVICE_MAX_CONNECTIONS=1", "fsdp.forward_prefetch", false, true},
                    Case{"CUDA_LAUNCH_BLOCKING=1", "fsdp.forward_prefetch", false, true},
                    Case{"CUDA_LAUNCH_BLOCKING=0", "", false, false},
                    Case{"CUDA_VISIBLE_DEVICES=1,0", "device.kind", false, true},
                    Case{"OMPI_MCA_btl=tcp,self", "comm.transport", true, true},
                    Case{"OMPI_MCA_btl_tcp_if_include=10.0.0.0/8", "", true, true},
                    Case{"OMPI_MCA_coll_tuned_use_dynamic_rules=1", "comm.transport", true, true},
                    Case{"OMPI_MCA_osc=pt2pt", "comm.transport", true, true},
                    Case{"OMPI_MCA_io=romio321", "output.file", true, true},
                    Case{"UCX_TLS=tcp", "comm.transport", true, true},
                    Case{"MPICH_ASYNC_PROGRESS=1", "comm.transport", false, false},
                    Case{"OMP_NUM_THREADS=1", "", false, false},
                    Case{"OMP_NUM_THREADS=8", "device.threads", false, false},
                    Case{"MKL_NUM_THREADS=8", "device.threads", false, false},
                    Case{"BLIS_JC_NT=2", "device.threads", false, false},
                    Case{"OMP_PROC_BIND=close", "device.threads", true, false},
                    Case{"HDF5_USE_FILE_LOCKING=FALSE", "output.existing", false, false}));

// As mpirun sets them for its children, and the harmless ones that people set.
TEST(Environment, OfWhatALauncherSetsNothingIsSaid) {
    const job::EnvironmentSaid said = job::look_at_environment(
        {"OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess=^singleton", "OMPI_MCA_ess_base_vpid=1",
         "OMPI_MCA_mpi_oversubscribe=0", "OMPI_MCA_mpi_yield_when_idle=1",
         "OMPI_MCA_orte_num_nodes=1", "OMPI_MCA_pmix=^s1,s2", "OMPI_MCA_rmaps_base_oversubscribe=1",
         "OMPI_MCA_shmem_RUNTIME_QUERY_hint=mmap", "OMPI_MCA_initial_wdir=/tmp",
         "PMIX_MCA_mca_base_component_show_load_errors=1", "PMIX_RANK=0", "SLURM_NTASKS=2",
         "OMPI_ALLOW_RUN_AS_ROOT=1", "PATH=/bin"},
        on_host);
    EXPECT_TRUE(said.overrides.empty());
    EXPECT_TRUE(said.notes.empty());
}

TEST(Environment, BindingIsNamedOnlyWhereThreadsShareCores) {
    const std::vector<std::string> bound = {"OMPI_MCA_hwloc_base_binding_policy=core"};
    EXPECT_EQ(job::look_at_environment(bound, on_host).overrides.size(), 1U);
    EXPECT_TRUE(job::look_at_environment(bound, {"host", 2, 2, 2, true}).overrides.empty());
}

TEST(Environment, VariablesThatDoTheSameShareALine) {
    const job::EnvironmentSaid said =
        job::look_at_environment({"UCX_TLS=tcp", "OMPI_MCA_pml=ob1"}, on_host);
    ASSERT_EQ(said.overrides.size(), 1U);
    EXPECT_EQ(said.overrides[0].find("OMPI_MCA_pml=ob1, UCX_TLS=tcp override comm.transport: "),
              0U);
}

// As Slurm sets it for a step with GPUs; a variable of one's own outside of a job is an override.
TEST(Environment, DevicesThatSlurmGrantsAreANoteAndNoOverride) {
    const job::EnvironmentSaid said = job::look_at_environment(
        {"CUDA_VISIBLE_DEVICES=0,1", "SLURM_JOB_ID=7", "SLURM_STEP_GPUS=2,3"}, on_gpus);
    EXPECT_TRUE(said.overrides.empty());
    ASSERT_EQ(said.notes.size(), 1U);
    EXPECT_EQ(said.notes[0].find("CUDA_VISIBLE_DEVICES=0,1 is what Slurm has granted: "), 0U);
    for (const char* alone : {"SLURM_JOB_ID=7", "SLURM_STEP_GPUS=2,3"}) {
        EXPECT_EQ(
            job::look_at_environment({"CUDA_VISIBLE_DEVICES=0,1", alone}, on_gpus).overrides.size(),
            1U);
    }
}

// One rank exchanges nothing.
TEST(Environment, OneRankHasNothingThatTransportsCouldChange) {
    const job::EnvironmentSaid said =
        job::look_at_environment({"OMPI_MCA_btl=self", "NCCL_ALGO=Ring"}, {"cuda", 1, 1, 1, true});
    EXPECT_TRUE(said.overrides.empty());
    EXPECT_EQ(said.notes.size(), 1U); // both for the same reason
}

} // namespace
