// SPDX-License-Identifier: Apache-2.0
// A save that is killed, or that the disk has no room for, leaves the checkpoint before it, and no
// name that could pass for a new one. The save is a child process with an MPI of its own.
#include <mpi.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "checkpoint_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;

// Where the child kills itself.
enum class Moment { laid_out, half_written, written };

class KilledSave : public ::testing::Test {
protected:
    // Begins an MPI job of one rank in a child: a complete checkpoint of step 1, then `work`.
    ::pid_t begin(const std::function<void(const mesh::Control&)>& work) const {
        const ::pid_t child = ::fork();
        if (child == 0) {
            try {
                // Open MPI starts no daemon, and leaves what it leaves in the test's own directory.
                ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
                ::setenv("OMPI_MCA_orte_tmpdir_base", (directory / "").c_str(), 1);
                MPI_Init(nullptr, nullptr);
                const mesh::Control control(MPI_COMM_WORLD);
                save_toy(control, directory / "", toy_content(1));
                work(control);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "%s\n", error.what());
            }
            ::_exit(1);
        }
        return child;
    }
    static int status_of(::pid_t child) {
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        return status;
    }
    int exit_status(const std::function<void(const mesh::Control&)>& work) const {
        const int status = status_of(begin(work));
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    // What every save that came to nothing leaves; the next one must succeed.
    void check_left() const {
        ASSERT_EQ(find_checkpoint(directory / "").path, path(1));
        expect_toy(Checkpoint(path(1)), 2);
        EXPECT_EQ(exit_status([&](const mesh::Control& control) {
                      save_toy(control, directory / "", toy_content(3), 1);
                      ::_exit(0);
                  }),
                  0);
        const FoundCheckpoint after = find_checkpoint(directory / "");
        EXPECT_EQ(after.path, path(3));
        EXPECT_TRUE(after.skipped.empty());
        EXPECT_FALSE(there(path(1)) || there(path(2)) || there(path(2) + ".part"));
        expect_toy(Checkpoint(path(3)), 3);
    }
    static bool there(const std::string& file) { return std::filesystem::exists(file); }
    std::string path(std::int64_t step) const { return directory / checkpoint_name(step); }

    // A limit on the size of files stands for a full disk: every write beyond it fails.
    static void limit_files(::rlim_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        const ::rlimit limit{bytes, bytes};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    // Ends the child with 42 if the error says what it must.
    void end_told(const base::Error& error, const std::string& cause) const {
        const std::string told = error.what();
        bool good = error.status() == base::Status::failed;
        for (const std::string& words :
             {path(2), cause, std::to_string(bytes_of(toy_content(2)).count) + " bytes",
              "last complete one is " + path(1)}) {
            good = good && told.find(words) != std::string::npos;
        }
        std::fprintf(stderr, "%s", good ? "" : told.c_str());
        ::_exit(good && !there(path(2) + ".part") && !there(path(2)) ? 42 : 1);
    }

    const Directory directory;
};

class KilledSaveAt : public KilledSave, public ::testing::WithParamInterface<Moment> {};

TEST_P(KilledSaveAt, g1_f4_leaves_the_one_before_and_what_it_began_is_skipped_and_cleared_away) {
    const Moment moment = GetParam();
    const int status = status_of(begin([&](const mesh::Control& control) {
        const CheckpointContent content = toy_content(2);
        CheckpointWriter writer(control, directory / "", content);
        if (moment != Moment::laid_out) {
            writer.fill(
                [&] { write_parts(writer, content, 0, moment == Moment::written ? 1 : 2); });
        }
        std::raise(SIGKILL);
    }));
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    const FoundCheckpoint found = find_checkpoint(directory / "");
    ASSERT_EQ(found.skipped.size(), 1U);
    EXPECT_EQ(found.skipped[0].path, path(2) + ".part");
    check_left();
}

INSTANTIATE_TEST_SUITE_P(moments, KilledSaveAt,
                         ::testing::Values(Moment::laid_out, Moment::half_written,
                                           Moment::written));

// Saves one after another, each removing the one before it, until it is killed: at every moment
// there is one that is complete.
TEST_F(KilledSave, f4_kill_at_any_time_leaves_one_that_is_complete) {
    for (int trial = 0; trial < 6; ++trial) {
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        const ::pid_t child = begin([&](const mesh::Control& control) {
            for (std::int64_t step = 10;; ++step) {
                save_toy(control, directory / "", toy_content(step), 1);
                if (step == 10) {
                    static_cast<void>(::write(ready[1], "x", 1));
                }
            }
        });
        ::close(ready[1]);
        char byte = 0;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        std::this_thread::sleep_for(std::chrono::microseconds(trial * 3100));
        ASSERT_EQ(::kill(child, SIGKILL), 0);
        EXPECT_TRUE(WIFSIGNALED(status_of(child)));
        const FoundCheckpoint found = find_checkpoint(directory / "");
        ASSERT_GE(found.step, 10);
        for (const SkippedCheckpoint& skipped : found.skipped) {
            EXPECT_EQ(skipped.path, path(found.step + 1) + ".part") << skipped.why;
        }
        expect_toy(Checkpoint(found.path), 2);
        for (const auto& entry : std::filesystem::directory_iterator(directory / "")) {
            std::filesystem::remove_all(entry.path());
        }
    }
}

TEST_F(KilledSave, disk_that_has_no_room_at_the_start_is_told_and_the_one_before_stays) {
    EXPECT_EQ(exit_status([&](const mesh::Control& control) {
                  limit_files(20000);
                  try {
                      save_toy(control, directory / "", toy_content(2), 1);
                  } catch (const mesh::AgreedError& error) {
                      end_told(error, "HDF5 failed to");
                  }
              }),
              42);
    check_left();
}

TEST_F(KilledSave, disk_that_fills_up_while_it_is_written_is_told_and_the_one_before_stays) {
    EXPECT_EQ(exit_status([&](const mesh::Control& control) {
                  const CheckpointContent content = toy_content(2);
                  CheckpointWriter writer(control, directory / "", content);
                  limit_files(20000);
                  try {
                      writer.fill([&] { write_parts(writer, content, 0, 1); });
                      writer.finish(1);
                  } catch (const mesh::AgreedError& error) {
                      end_told(error, "write");
                  }
              }),
              42);
    check_left();
}

TEST(CheckpointFolder, names_and_steps_are_each_others_inverse) {
    EXPECT_EQ(checkpoint_name(10), "step-00000010.h5");
    EXPECT_EQ(checkpoint_name(1234567890), "step-1234567890.h5");
    for (const std::int64_t step : {0, 7, 99999999, 100000000}) {
        EXPECT_EQ(step_of_name(checkpoint_name(step)), step);
    }
    for (const char* name : {"step-10.h5", "step-000000010.h5", "step-00000010.h5.part",
                             "step-0000001x.h5", "step--0000010.h5", "other.h5", "step-.h5"}) {
        EXPECT_EQ(step_of_name(name), std::nullopt) << name;
    }
}

TEST(CheckpointFolder, is_made_when_it_is_not_there_and_refused_where_it_cannot_be) {
    const Directory directory;
    EXPECT_FALSE(hold_checkpoints(directory / "made"));
    prepare_checkpoints(directory / "made");
    prepare_checkpoints(directory / "made");
    EXPECT_TRUE(std::filesystem::is_empty(directory / "made"));
    spill(directory / "file", "x");
    expect_refused({directory / "file"}, [&] { prepare_checkpoints(directory / "file"); });
    expect_refused({directory / "no/deeper"},
                   [&] { prepare_checkpoints(directory / "no/deeper"); });
    EXPECT_EQ(find_checkpoint(directory / "none").path, "");
    EXPECT_EQ(find_checkpoint(directory / "made").path, "");
}

TEST(CheckpointFolder, is_one_run_s_at_a_time_and_holds_no_folder_named_like_a_checkpoint) {
    const Directory directory;
    prepare_checkpoints(directory / "made");
    {
        const Descriptor held = hold_checkpoints(directory / "made");
        EXPECT_TRUE(held);
        expect_refused({directory / "made", "another run"},
                       [&] { static_cast<void>(hold_checkpoints(directory / "made")); });
        EXPECT_EQ(find_checkpoint(directory / "made").path, ""); // whoever reads is let in
    }
    EXPECT_TRUE(hold_checkpoints(directory / "made"));
    for (const char* name : {"step-00000010.h5.part", "step-00000010.h5"}) {
        const std::string path = directory / ("made/" + std::string(name));
        std::filesystem::create_directory(path);
        expect_refused({path, "no file"}, [&] { prepare_checkpoints(directory / "made"); });
        std::filesystem::remove(path);
    }
    prepare_checkpoints(directory / "made");
}

TEST(Blocks, cover_any_stretch_of_any_array_once_and_in_order) {
    for (const base::Shape& shape : {base::Shape{24}, {6, 4}, {4, 1, 6}, {2, 3, 4}, {1, 24, 1}}) {
        for (base::Elements begin = 0; begin <= 24; ++begin) {
            for (base::Elements end = begin; end <= 24; ++end) {
                base::Elements at = begin;
                std::int64_t blocks = 0;
                for_each_block(shape, {begin, end}, [&](const Block& block, base::Elements p) {
                    EXPECT_EQ(p, at - begin);
                    base::Elements first = 0;
                    for (std::size_t d = 0; d < shape.size(); ++d) {
                        first = first * shape[d] + block.start[d];
                        EXPECT_LE(block.start[d] + block.count[d], shape[d]);
                    }
                    EXPECT_EQ(first, at);
                    at += base::elements_of(block.count);
                    ++blocks;
                });
                EXPECT_EQ(at, end);
                EXPECT_LE(blocks, 2 * std::ssize(shape) - 1);
            }
        }
    }
}

} // namespace
} // namespace foregather::io
