// SPDX-License-Identifier: Apache-2.0
// A results file from layout to rename, on any number of ranks: what is stored, and that one rank
// or many store the same.
#include <mpi.h>

#include <numbers>

#include "../../unit/io/results_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;
using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

class ResultsFileTest : public ::testing::Test {
protected:
    ResultsFileTest() : control(MPI_COMM_WORLD), directory(control) {
        if (control.first()) {
            write_tokens(directory / "t.h5");
        }
        control.barrier();
    }
    // A whole run; collective over the ranks of `group`.
    void run(const mesh::Control& group, const Output& output, std::int64_t broken = -1) const {
        const TokenFile tokens(directory / "t.h5");
        ResultsFile file(group, output, ScoreLayout{tokens, 6}, {}, {});
        write_share(group, file, broken);
        const Summary summary = file.summarise();
        file.finish(summary, {}, {});
    }

    const mesh::Control control;
    const SharedDirectory directory;
};

TEST_F(ResultsFileTest, layout_is_whole_before_anything_is_written) {
    const TokenFile tokens(directory / "t.h5");
    const std::string path = directory / "r.h5";
    ResultsFile file(control, {path, false, "a title"}, ScoreLayout{tokens, 6}, {},
                     {{"/provenance/deck_text", "a deck"}});
    const std::string part = path + ".part";
    EXPECT_EQ(file.part_path(), part);
    EXPECT_EQ(file.note(), "");
    for (const float logprob : all_of<float>(part, "/score/logprob")) {
        EXPECT_TRUE(std::isnan(logprob));
    }
    EXPECT_EQ(all_of<std::uint8_t>(part, "/score/greedy"), Bytes(15, 0));
    EXPECT_EQ(all_of<std::int64_t>(part, "/score/offsets"), offsets);
    EXPECT_EQ(all_of<double>(part, "/score/document_nll"), Doubles(6, 0.0));
    EXPECT_EQ(all_of<std::int64_t>(part, "/score/document_scored_tokens"), Ints(6, 0));
    EXPECT_EQ(all_of<std::uint8_t>(part, "/score/document_status"), Bytes(6, 3));
    EXPECT_EQ(all_of<std::uint8_t>(part, "/provenance/packs_done"), Bytes(6, 0));
    EXPECT_EQ(raw_text(part, "/score/id"), raw_text(directory / "t.h5", "/id"));
    EXPECT_EQ(raw_text(part, "/provenance/deck_text"), "a deck");
    EXPECT_EQ(number_attribute(part, "/", "complete"), 0.0);
    EXPECT_TRUE(std::isnan(number_attribute(part, "/score", "loss")));
    EXPECT_FALSE(std::filesystem::exists(path));
    control.barrier();
}

TEST_F(ResultsFileTest, finished_file_holds_every_rank_s_scores) {
    const std::string path = directory / "r.h5";
    run(control, {path, false, "a title"});
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    const auto logprob = all_of<float>(path, "/score/logprob");
    const auto greedy = all_of<std::uint8_t>(path, "/score/greedy");
    Doubles nll(6, 0.0);
    Ints scored(6, 0);
    for (std::int64_t d = 0; d < documents_run; ++d) {
        const Scores s = scores_of(d);
        nll[static_cast<std::size_t>(d)] = s.nll;
        scored[static_cast<std::size_t>(d)] = s.scored;
        for (std::size_t i = 0; i < s.logprob.size(); ++i) {
            const std::size_t t =
                static_cast<std::size_t>(offsets[static_cast<std::size_t>(d)]) + i;
            EXPECT_TRUE(logprob[t] == s.logprob[i] || (std::isnan(logprob[t]) && i == 0)) << t;
            EXPECT_EQ(greedy[t], s.greedy[i]) << t;
        }
    }
    EXPECT_TRUE(std::isnan(logprob[13]) && std::isnan(logprob[14])); // beyond what was run
    EXPECT_EQ(all_of<double>(path, "/score/document_nll"), nll);
    EXPECT_EQ(all_of<std::int64_t>(path, "/score/document_scored_tokens"), scored);
    EXPECT_EQ(all_of<std::uint8_t>(path, "/score/document_status"), (Bytes{0, 1, 1, 0, 0, 3}));
    EXPECT_EQ(all_of<std::uint8_t>(path, "/provenance/packs_done"), (Bytes{1, 1, 1, 1, 1, 0}));
    EXPECT_EQ(string_attribute(path, "/", "format"), "foregather.results");
    EXPECT_EQ(string_attribute(path, "/", "title"), "a title");
    EXPECT_EQ(number_attribute(path, "/", "format_version"), 1.0);
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
    const File opened = open_input(path, "file of a test");
    haddr_t end = 0;
    good(H5Fget_eoa(opened.handle(), &end)); // nothing of the room that was reserved is left
    EXPECT_EQ(std::filesystem::file_size(path), end);
    EXPECT_EQ(string_attribute(path, "/score/logprob", "units"), "nat");
    EXPECT_EQ(string_attribute(path, "/score/greedy", "units"), "1");
    EXPECT_NE(string_attribute(path, "/score/document_status", "long_name").find("3 not run"),
              std::string::npos);
    control.barrier();
}

TEST_F(ResultsFileTest, summary_follows_its_formulas) {
    const std::string path = directory / "r.h5";
    const TokenFile tokens(directory / "t.h5");
    ResultsFile file(control, {path, false, ""}, ScoreLayout{tokens, 6}, {}, {});
    write_share(control, file);
    const Summary summary = file.summarise();
    // Documents 0, 3, 4: tokens 1..3, 6..7, 9..12 at -(t % 7 + 1) / 4.
    const Doubles nll{2.25, 2.0, 4.5};
    const Ints scored{3, 2, 4};
    EXPECT_EQ(summary.scored_tokens, 9);
    EXPECT_EQ(summary.scored_documents, 3);
    EXPECT_EQ(summary.empty_documents, 2);
    EXPECT_EQ(summary.documents_not_run, 1);
    EXPECT_EQ(summary.total_nll, 8.75);
    EXPECT_DOUBLE_EQ(summary.loss, 8.75 / 9.0);
    EXPECT_DOUBLE_EQ(summary.perplexity, std::exp(8.75 / 9.0));
    double squares = 0.0;
    for (std::size_t d = 0; d < 3; ++d) {
        squares += std::pow(nll[d] - 8.75 / 9.0 * static_cast<double>(scored[d]), 2.0);
    }
    EXPECT_DOUBLE_EQ(summary.standard_error, std::sqrt(1.5 * squares) / 9.0);
    EXPECT_DOUBLE_EQ(summary.bits_per_byte.value(), 8.75 / std::numbers::ln2 / 65.0);
    file.finish(summary, {}, {});
    EXPECT_EQ(number_attribute(path, "/score", "loss"), summary.loss);
    EXPECT_EQ(number_attribute(path, "/score", "perplexity"), summary.perplexity);
    EXPECT_EQ(number_attribute(path, "/score", "standard_error"), summary.standard_error);
    EXPECT_EQ(number_attribute(path, "/score", "scored_tokens"), 9.0);
    EXPECT_EQ(number_attribute(path, "/score", "bits_per_byte"), summary.bits_per_byte.value());
    control.barrier();
}

TEST_F(ResultsFileTest, document_that_is_not_finite_is_left_out_of_the_loss) {
    if (control.first()) {
        write_tokens(directory / "no-bytes.h5", false);
    }
    control.barrier();
    const TokenFile tokens(directory / "no-bytes.h5");
    const std::string path = directory / "r.h5";
    ResultsFile file(control, {path, false, ""}, ScoreLayout{tokens, 6}, {}, {});
    write_share(control, file, 7); // in document 3
    const Summary summary = file.summarise();
    EXPECT_EQ(summary.not_finite_documents, 1);
    EXPECT_EQ(summary.scored_tokens, 7);
    EXPECT_DOUBLE_EQ(summary.loss, 6.75 / 7.0);
    EXPECT_FALSE(summary.bits_per_byte.has_value());
    file.finish(summary, {}, {});
    EXPECT_FALSE(has_attribute(path, "/score", "bits_per_byte"));
    EXPECT_EQ(number_attribute(path, "/score", "not_finite_documents"), 1.0);
    control.barrier();
}

TEST_F(ResultsFileTest, one_document_has_no_standard_error_and_none_no_loss) {
    const TokenFile tokens(directory / "t.h5");
    ResultsFile file(control, {directory / "r.h5", false, ""}, ScoreLayout{tokens, 6}, {}, {});
    const Summary none = file.summarise();
    EXPECT_EQ(none.scored_tokens, 0);
    EXPECT_TRUE(std::isnan(none.loss) && std::isnan(none.perplexity));
    if (control.rank() == control.size() - 1) {
        write_document(file, 0);
    }
    const Summary one = file.summarise();
    EXPECT_DOUBLE_EQ(one.loss, 0.75);
    EXPECT_TRUE(std::isnan(one.standard_error));
}

TEST_F(ResultsFileTest, marks_of_packs_appear_with_the_flush_that_follows_their_data) {
    const TokenFile tokens(directory / "t.h5");
    ResultsFile file(control, {directory / "r.h5", false, ""}, ScoreLayout{tokens, 6}, {}, {});
    const std::int64_t before = file.bytes_written();
    write_share(control, file);
    const std::int64_t written = file.bytes_written() - before;
    EXPECT_EQ(control.sum(written), 13 * 5 + 5 * 17);
    EXPECT_EQ(all_of<std::uint8_t>(file.part_path(), "/provenance/packs_done"), Bytes(6, 0));
    control.barrier();
    file.flush();
    EXPECT_EQ(all_of<std::uint8_t>(file.part_path(), "/provenance/packs_done"),
              (Bytes{1, 1, 1, 1, 1, 0}));
    control.barrier();
}

TEST_F(ResultsFileTest, one_rank_and_many_store_the_same_bytes) {
    const std::string one = directory / "one.h5", many = directory / "many.h5";
    if (control.first()) {
        const mesh::Control alone(MPI_COMM_SELF);
        run(alone, {one, false, "t"});
    }
    control.barrier();
    run(control, {many, false, "t"});
    if (control.first()) {
        // No time stamps, and nothing that depends on who wrote: the files are equal to the byte.
        EXPECT_EQ(slurp(one), slurp(many));
        if (std::system("command -v h5diff > /dev/null") == 0) {
            const std::string command = "h5diff '" + one + "' '" + many + "'";
            EXPECT_EQ(std::system(command.c_str()), 0);
        }
    }
    control.barrier();
}

TEST_F(ResultsFileTest, results_need_no_scores) {
    const std::string path = directory / "b.h5";
    const Table table{"/bench/rows", {{"depth", "1", "gathers ahead", Ints{0, 1}}}, {}};
    ResultsFile file(control, {path, false, "bench"}, std::nullopt, {table}, {});
    const float value = 0.0F;
    const std::uint8_t flag = 0;
    expect_error(base::Status::failed, {"without scores"}, [&] {
        file.write_score(0, {&value, 1}, {&flag, 1});
    });
    file.finish(std::nullopt, {}, {});
    EXPECT_EQ(all_of<std::int64_t>(path, "/bench/rows/depth"), (Ints{0, 1}));
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
    expect_error(base::Status::failed, {"closed already"}, [&] { file.flush(); });
    control.barrier();
}

} // namespace
} // namespace foregather::io
