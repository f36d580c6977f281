// SPDX-License-Identifier: Apache-2.0
// A run that is killed, or that the disk has no more room for, leaves a PATH.part that opens, whose
// marked packs are whole, and no final name. The run is a child process with an MPI of its own.
#include <mpi.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "results_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;

// Where the child kills itself.
enum class Moment { laid_out, written, flushed, written_again };

class KilledWriter : public ::testing::Test {
protected:
    KilledWriter() { write_tokens(directory / "t.h5"); }

    // Runs `work` as an MPI job of one rank in a child; returns how it ended.
    int run(const std::function<void(ResultsFile&)>& work) const {
        const ::pid_t child = ::fork();
        if (child == 0) {
            work_and_die(work);
        }
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        return status;
    }
    void run_and_kill(const std::function<void(ResultsFile&)>& work) const {
        const int status = run(work);
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    }
    [[noreturn]] void work_and_die(const std::function<void(ResultsFile&)>& work) const {
        be_job_and_die([&](const mesh::Control& control) {
            const TokenFile tokens(directory / "t.h5");
            ResultsFile file(control, {path, true, "killed"}, ScoreLayout{tokens, 6}, {},
                             {{"/provenance/deck_text", "a deck"}});
            work(file);
        });
    }
    [[noreturn]] void be_job_and_die(const std::function<void(const mesh::Control&)>& work) const {
        try {
            // Open MPI starts no daemon, and leaves what it leaves in the test's own directory.
            ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
            ::setenv("OMPI_MCA_orte_tmpdir_base", (directory / "").c_str(), 1);
            MPI_Init(nullptr, nullptr);
            const mesh::Control control(MPI_COMM_WORLD);
            work(control);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        ::_exit(1);
    }
    [[noreturn]] static void die() {
        std::raise(SIGKILL);
        std::abort();
    }
    // What every killed run leaves: a file that opens, without the mark of completeness, and in
    // which the documents of marked packs are whole.
    void check_part() const {
        EXPECT_FALSE(std::filesystem::exists(path));
        EXPECT_EQ(string_attribute(part, "/", "format"), "foregather.results");
        EXPECT_EQ(raw_text(part, "/provenance/deck_text"), "a deck");
        EXPECT_EQ(number_attribute(part, "/", "complete"), 0.0);
        const auto done = all_of<std::uint8_t>(part, "/provenance/packs_done");
        const auto logprob = all_of<float>(part, "/score/logprob");
        const auto nll = all_of<double>(part, "/score/document_nll");
        ASSERT_EQ(logprob.size(), 15U);
        for (std::size_t d = 0; d < done.size(); ++d) {
            if (done[d] == 1) {
                const Scores expected = scores_of(static_cast<std::int64_t>(d));
                EXPECT_EQ(nll[d], expected.nll);
                for (std::size_t i = 1; i < expected.logprob.size(); ++i) {
                    EXPECT_EQ(logprob[static_cast<std::size_t>(offsets[d]) + i],
                              expected.logprob[i]);
                }
            }
        }
        if (std::system("command -v h5dump > /dev/null") == 0) {
            const std::string command = "h5dump '" + part + "' > /dev/null";
            EXPECT_EQ(std::system(command.c_str()), 0);
        }
    }
    std::vector<std::uint8_t> marks() const {
        return all_of<std::uint8_t>(part, "/provenance/packs_done");
    }

    const Directory directory;
    const std::string path = directory / "r.h5";
    const std::string part = path + ".part";
};

class KilledWriterAt : public KilledWriter, public ::testing::WithParamInterface<Moment> {};

TEST_P(KilledWriterAt, f4_part_opens_and_its_marks_can_be_trusted) {
    const Moment moment = GetParam();
    const auto at = [moment](Moment here) {
        if (here == moment) {
            die();
        }
    };
    run_and_kill([&](ResultsFile& file) {
        at(Moment::laid_out);
        write_document(file, 0);
        write_document(file, 3);
        at(Moment::written);
        file.flush();
        at(Moment::flushed);
        write_document(file, 4);
        at(Moment::written_again);
    });
    check_part();
    const bool flushed = moment == Moment::flushed || moment == Moment::written_again;
    const std::uint8_t mark = flushed ? 1 : 0;
    EXPECT_EQ(marks(), (std::vector<std::uint8_t>{mark, 0, 0, mark, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(moments, KilledWriterAt,
                         ::testing::Values(Moment::laid_out, Moment::written, Moment::flushed,
                                           Moment::written_again));

TEST_F(KilledWriter, f4_kill_at_any_time_while_writing) {
    for (int trial = 0; trial < 5; ++trial) {
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        const ::pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            work_and_die([&](ResultsFile& file) {
                for (std::int64_t d = 0;; d = (d + 1) % documents_run) {
                    write_document(file, d);
                    file.flush();
                    if (d == 0) {
                        static_cast<void>(::write(ready[1], "x", 1));
                    }
                }
            });
        }
        ::close(ready[1]);
        char byte = 0;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1); // the child writes by now
        ::close(ready[0]);
        std::this_thread::sleep_for(std::chrono::microseconds(trial * trial * 500));
        ASSERT_EQ(::kill(child, SIGKILL), 0);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFSIGNALED(status));
        check_part();
        EXPECT_EQ(marks()[0], 1);
    }
}

TEST_F(KilledWriter, f4_steps_of_training_are_there_up_to_the_last_flush) {
    const ::pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        be_job_and_die([&](const mesh::Control& control) {
            ResultsFile file(control, {path, true, "killed"}, std::nullopt,
                             {starts_table({{"now", 1, 0, "foregather", 0}})}, {}, std::nullopt,
                             TrainLayout{5, 1, 5});
            file.write_steps(0, {{1, 2}, {3.0, 2.5}, {1.0, 1.5}, {0.1, 0.2}, {7, 8}});
            file.write_items(0, {{1, 2}, {40, 20}, {0, 0}});
            file.flush();
            file.write_evaluations(0, {{2}, {4.0}, {9}});
            die();
        });
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(std::filesystem::exists(path));
    const Earlier left = read_earlier(part);
    EXPECT_EQ(left.unusable, "");
    EXPECT_FALSE(left.complete);
    EXPECT_EQ(left.steps, (LossHistory{{1, 2}, {3.0, 2.5}, {1.0, 1.5}, {0.1, 0.2}, {7, 8}}));
    ASSERT_EQ(left.starts.size(), 1U);
    EXPECT_EQ(all_of<std::int64_t>(part, "/train/items/document"),
              (std::vector<std::int64_t>{40, 20, -1, -1, -1}));
}

// A limit on the size of files stands for a full disk: every write beyond it fails.
TEST_F(KilledWriter, disk_without_room_is_told_and_keeps_the_scores) {
    const int status = run([](ResultsFile& file) {
        write_document(file, 0);
        file.flush();
        std::signal(SIGXFSZ, SIG_IGN);
        const ::rlimit limit{100000, 100000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        try {
            file.finish(file.summarise(), {}, {{"/provenance/log", std::string(200000, 'x')}});
        } catch (const mesh::AgreedError& error) {
            const std::string told = error.what();
            const bool good = error.status() == base::Status::failed &&
                              told.find("no room for") != std::string::npos &&
                              told.find(file.part_path()) != std::string::npos;
            std::fprintf(stderr, "%s", good ? "" : told.c_str());
            ::_exit(good ? 42 : 1);
        }
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
    check_part();
    EXPECT_EQ(marks(), (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0}));
}

TEST_F(KilledWriter, next_run_replaces_the_part_and_completes) {
    run_and_kill([](ResultsFile& file) {
        file.flush();
        die();
    });
    run_and_kill([](ResultsFile& file) {
        if (file.note().empty()) {
            ::_exit(2);
        }
        file.finish(std::nullopt, {}, {});
        die();
    });
    EXPECT_FALSE(std::filesystem::exists(part));
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
}

} // namespace
} // namespace foregather::io
