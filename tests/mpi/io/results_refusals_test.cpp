// SPDX-License-Identifier: Apache-2.0
// Results that cannot be stored: refused before anything is written, or kept as PATH.part.
#include <mpi.h>

#include "../../unit/io/results_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;

class ResultsRefusals : public ::testing::Test {
protected:
    ResultsRefusals() : control(MPI_COMM_WORLD), directory(control) {
        if (control.first()) {
            write_tokens(directory / "t.h5");
            std::filesystem::create_directory(directory / "folder");
        }
        control.barrier();
    }
    // Runs `work` on rank 0 alone, then lets all go on.
    void on_first(const std::function<void()>& work) const {
        if (control.first()) {
            work();
        }
        control.barrier();
    }
    std::unique_ptr<ResultsFile> open(const Output& output) const {
        const TokenFile tokens(directory / "t.h5");
        return std::make_unique<ResultsFile>(control, output, ScoreLayout{tokens, 6},
                                             std::vector<Table>{}, std::vector<Text>{});
    }
    // The same refusal on every rank, as an error that all of them hold.
    void expect_agreed(base::Status status, const std::vector<std::string>& words,
                       const std::function<void()>& work) const {
        expect_error(status, words, [&] {
            try {
                work();
            } catch (const mesh::AgreedError&) {
                throw;
            } catch (const std::exception& error) {
                ADD_FAILURE() << "not agreed: " << error.what();
                throw;
            }
        });
        control.barrier();
    }

    const mesh::Control control;
    const SharedDirectory directory;
    const std::string path = directory / "r.h5";
    const std::string part = path + ".part";
};

TEST_F(ResultsRefusals, existing_file_is_refused_and_left_alone) {
    on_first([&] { spill(path, "older results"); });
    expect_agreed(base::Status::refused, {path, "exists", "output.existing = replace"}, [&] {
        open({path, false, ""});
    });
    EXPECT_EQ(slurp(path), "older results");
    EXPECT_FALSE(std::filesystem::exists(part));
    on_first([&] { expect_refused({path}, [&] { refuse_unusable({path, false, ""}); }); });
}

TEST_F(ResultsRefusals, existing_file_stays_until_the_new_one_is_complete) {
    on_first([&] { spill(path, "older results"); });
    const auto file = open({path, true, ""});
    file->flush();
    EXPECT_EQ(slurp(path), "older results");
    control.barrier();
    file->finish(std::nullopt, {}, {});
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
    EXPECT_FALSE(std::filesystem::exists(part));
    control.barrier();
}

TEST_F(ResultsRefusals, left_over_part_is_replaced_and_told_on_every_rank) {
    on_first([&] { spill(part, std::string(100000, 'x')); });
    const auto file = open({path, false, ""});
    EXPECT_EQ(file->note(), part + ", left by a run that did not end, was replaced");
    file->finish(std::nullopt, {}, {});
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
    control.barrier();
}

TEST_F(ResultsRefusals, directories_that_cannot_hold_the_file) {
    on_first([&] { spill(directory / "plain", "no directory"); });
    const auto refused = [&](const std::string& where, const std::vector<std::string>& words) {
        expect_agreed(base::Status::refused, words, [&] { open({where, true, ""}); });
    };
    refused(directory / "none/r.h5", {"none", "No such file or directory"});
    refused(directory / "plain/r.h5", {"plain", "Not a directory"});
    refused(directory / "folder", {"not a regular file"});
    refused("/proc/r.h5", {"cannot create /proc/r.h5.part"});
    refused("", {"output.file"});
    on_first([&] { std::filesystem::create_directory(part); });
    refused(path, {part, "not a regular file"});
}

TEST_F(ResultsRefusals, trying_leaves_nothing_behind) {
    on_first([&] {
        refuse_unusable({path, false, "a title"});
        EXPECT_FALSE(std::filesystem::exists(part));
        spill(part, "kept");
        refuse_unusable({path, false, "a title"});
        EXPECT_EQ(slurp(part), "kept");
    });
}

TEST_F(ResultsRefusals, file_system_without_room) {
    on_first([&] {
        EXPECT_NO_THROW(refuse_without_room({path, false, ""}, {1000}));
        expect_refused({path, "needs 4611686018427387904 bytes", "bytes free"}, [&] {
            refuse_without_room({path, false, ""}, {std::int64_t{1} << 62});
        });
        const TokenFile tokens(directory / "t.h5");
        EXPECT_EQ(bytes_of(ScoreLayout{tokens, 6}).count,
                  15 * 5 + 6 * (8 + 8 + 1) + 7 * 8 + 6 * 5 + 6);
    });
}

TEST_F(ResultsRefusals, f6_title_that_no_attribute_can_hold) {
    expect_agreed(base::Status::refused, {"job.title", "60000"}, [&] {
        open({path, false, std::string(60000, 't')});
    });
    EXPECT_FALSE(std::filesystem::exists(part));
    const std::string longest(longest_attribute - 1, 't');
    control.barrier();
    open({path, false, longest})->finish(std::nullopt, {}, {});
    EXPECT_EQ(string_attribute(path, "/", "title"), longest);
    control.barrier();
}

TEST_F(ResultsRefusals, failed_rename_is_told_and_keeps_the_part) {
    const auto file = open({path, true, ""});
    on_first([&] { std::filesystem::create_directories(path + "/inside"); });
    expect_agreed(base::Status::failed, {"cannot rename", path, "complete in " + part},
                  [&] { file->finish(std::nullopt, {}, {}); });
    EXPECT_TRUE(std::filesystem::is_directory(path));
    EXPECT_EQ(number_attribute(part, "/", "complete"), 1.0);
    control.barrier();
}

TEST_F(ResultsRefusals, file_that_appears_during_the_run_is_not_overwritten) {
    const auto file = open({path, false, ""});
    on_first([&] { spill(path, "somebody else's"); });
    expect_agreed(base::Status::failed, {path, "came into being", part},
                  [&] { file->finish(std::nullopt, {}, {}); });
    EXPECT_EQ(slurp(path), "somebody else's");
    EXPECT_EQ(number_attribute(part, "/", "complete"), 1.0);
    control.barrier();
}

TEST_F(ResultsRefusals, failed_completion_is_told_and_gives_no_final_name) {
    const auto file = open({path, false, ""});
    const Table broken{
        "/timing/spans",
        {{"a", "s", "", std::vector<double>{1, 2}}, {"b", "s", "", std::vector<double>{1}}},
        {}};
    expect_agreed(base::Status::failed, {"/timing/spans/b has 1 rows", "2"},
                  [&] { file->finish(std::nullopt, {broken}, {}); });
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(number_attribute(part, "/", "complete"), 0.0);
    control.barrier();
}

TEST_F(ResultsRefusals, writes_outside_the_layout_are_errors_of_their_rank) {
    const auto file = open({path, false, ""});
    const std::vector<float> logprob(3, 0.0F);
    const std::vector<std::uint8_t> greedy(3, 0);
    expect_error(base::Status::failed, {"/score/logprob", part},
                 [&] { file->write_score(13, logprob, greedy); });
    control.barrier();
}

TEST_F(ResultsRefusals, rank_on_its_way_out_does_not_wait_for_the_others) {
    const auto leave = [&](std::unique_ptr<ResultsFile> file) {
        try {
            const auto owner = std::move(file);
            throw std::runtime_error("this rank fails");
        } catch (const std::runtime_error&) {
        }
    };
    auto file = open({path, false, ""});
    if (control.first()) {
        leave(std::move(file)); // would hang here if closing waited for the ranks at the barrier
    }
    control.barrier();
    if (!control.first()) {
        leave(std::move(file));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::exists(part));
    control.barrier();
}

} // namespace
} // namespace foregather::io
