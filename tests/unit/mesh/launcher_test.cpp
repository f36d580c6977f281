// SPDX-License-Identifier: Apache-2.0
// What launcher_claim() makes of the variables that launchers set (field case T22: not N lonely
// jobs), and who speaks before MPI is up. What Session does with a claim needs MPI and is tested
// with the whole program.
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/mesh/session.hpp>

using namespace foregather;

namespace {

// The environment without any launcher's variables, put back at the end.
class LauncherTest : public testing::Test {
protected:
    void SetUp() override {
        for (const char* name : names) {
            if (const char* value = std::getenv(name)) {
                saved_[name] = value;
            }
            unsetenv(name);
        }
    }
    void TearDown() override {
        for (const char* name : names) {
            unsetenv(name);
        }
        for (const auto& [name, value] : saved_) {
            set(name, value);
        }
    }

    static void set(const std::string& name, const std::string& value) {
        ASSERT_EQ(setenv(name.c_str(), value.c_str(), 1), 0);
    }

    static void expect_claim(const std::string& variable, int ranks, bool certain) {
        const auto claim = mesh::launcher_claim();
        ASSERT_TRUE(claim.has_value());
        EXPECT_EQ(claim->variable, variable);
        EXPECT_EQ(claim->ranks, ranks);
        EXPECT_EQ(claim->certain, certain);
    }

    static constexpr const char* names[] = {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS",
                                            "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "PMIX_SIZE",
                                            "OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK"};

private:
    std::map<std::string, std::string> saved_;
};

} // namespace

TEST_F(LauncherTest, T22_no_launcher_makes_no_claim) {
    EXPECT_FALSE(mesh::launcher_claim().has_value());
}

TEST_F(LauncherTest, T22_a_batch_step_is_certain) {
    set("SLURM_STEP_NUM_TASKS", "4");
    set("SLURM_PROCID", "2");
    expect_claim("SLURM_STEP_NUM_TASKS", 4, true);
}

TEST_F(LauncherTest, T22_mpirun_and_pmi_are_certain) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}) {
        set(name, "4");
        expect_claim(name, 4, true);
        unsetenv(name);
    }
}

TEST_F(LauncherTest, T22_a_batch_allocation_is_a_hint_only) {
    set("SLURM_NTASKS", "4");
    expect_claim("SLURM_NTASKS", 4, false);
}

TEST_F(LauncherTest, T22_the_step_wins_over_the_allocation) {
    set("SLURM_NTASKS", "16");
    set("SLURM_STEP_NUM_TASKS", "4");
    expect_claim("SLURM_STEP_NUM_TASKS", 4, true);
}

TEST_F(LauncherTest, T22_mpirun_inside_an_allocation_or_step_wins) {
    set("SLURM_NTASKS", "16");
    set("SLURM_STEP_NUM_TASKS", "1");
    set("OMPI_COMM_WORLD_SIZE", "2");
    expect_claim("OMPI_COMM_WORLD_SIZE", 2, true);
}

TEST_F(LauncherTest, T22_what_is_no_count_of_ranks_claims_nothing) {
    for (const char* text : {"", "0", "-4", "four", "4(x2)", "4 ", "99999999999999999999"}) {
        set("SLURM_STEP_NUM_TASKS", text);
        EXPECT_FALSE(mesh::launcher_claim().has_value()) << "of \"" << text << "\"";
    }
}

TEST_F(LauncherTest, one_process_of_a_job_speaks_before_mpi_is_up) {
    EXPECT_TRUE(mesh::speaks_before_mpi()) << "without a launcher";
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        set(name, "0");
        EXPECT_TRUE(mesh::speaks_before_mpi()) << name;
        for (const char* other : {"1", "10"}) {
            set(name, other);
            EXPECT_FALSE(mesh::speaks_before_mpi()) << name;
        }
        unsetenv(name);
    }
}

TEST_F(LauncherTest, mpiruns_rank_counts_inside_a_batch_step_of_one) {
    set("SLURM_PROCID", "0"); // the same for all that mpirun starts there
    set("OMPI_COMM_WORLD_RANK", "3");
    EXPECT_FALSE(mesh::speaks_before_mpi());
}
