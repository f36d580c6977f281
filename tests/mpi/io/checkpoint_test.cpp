// SPDX-License-Identifier: Apache-2.0
// Checkpoints as any number of ranks writes them and any other reads them, bit for bit, and what is
// left when one of the ranks cannot go on.
#include <foregather/io/checkpoint_file.hpp>

#include "../../support/mpi_test.hpp"
#include "../../unit/io/checkpoint_fixture.hpp"
#include "../../unit/io/results_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;

// The first `ranks` of the job; others get none.
mesh::Comm first_ranks(int ranks) {
    MPI_Comm comm = MPI_COMM_NULL;
    mesh::check(MPI_Comm_split(MPI_COMM_WORLD, tests::rank() < ranks ? 0 : MPI_UNDEFINED, 0, &comm),
                "split the ranks of a test");
    return mesh::Comm(comm);
}

class CheckpointTest : public ::testing::Test {
protected:
    // Saves by so many of the ranks; waits for them.
    void save_by(int ranks, const CheckpointContent& content, std::int64_t keep = 0,
                 std::int64_t piece_bytes = default_piece_bytes) const {
        if (const mesh::Comm comm = first_ranks(ranks)) {
            const mesh::Control control(comm.handle());
            EXPECT_EQ(save_toy(control, directory / "", content, keep, piece_bytes), "");
        }
        world.barrier();
    }
    std::string path(std::int64_t step) const { return directory / checkpoint_name(step); }
    bool there(std::int64_t step) const { return std::filesystem::exists(path(step)); }
    bool part_there(std::int64_t step) const {
        return std::filesystem::exists(path(step) + ".part");
    }

    const mesh::Control world{MPI_COMM_WORLD};
    const SharedDirectory directory{world};
};

TEST_F(CheckpointTest, any_number_of_ranks_reads_what_any_other_wrote) {
    for (int writers = 1; writers <= tests::ranks(); ++writers) {
        save_by(writers, toy_content(writers));
        const Checkpoint checkpoint(path(writers));
        for (const int readers : {1, 2, 3, 4, 8}) {
            expect_toy(checkpoint, readers);
        }
        EXPECT_FALSE(part_there(writers));
    }
}

TEST_F(CheckpointTest, is_the_same_file_to_the_byte_whoever_wrote_it_in_what_pieces) {
    save_by(1, toy_content(7));
    const std::string alone = slurp(path(7));
    for (const std::int64_t piece_bytes : {4, 36, 1 << 20}) {
        save_by(tests::ranks(), toy_content(7), 0, piece_bytes);
        EXPECT_TRUE(slurp(path(7)) == alone) << piece_bytes;
    }
    EXPECT_LE(std::ssize(alone), bytes_of(toy_content(7)).count);
}

TEST_F(CheckpointTest, keeps_state_config_and_tokenizer) {
    CheckpointContent content = toy_content(3);
    content.state.history.loss[1] = std::numeric_limits<double>::infinity();
    save_by(tests::ranks(), content);
    const Checkpoint checkpoint(path(3));
    EXPECT_EQ(checkpoint.state(), content.state);
    EXPECT_TRUE(checkpoint.has_moments());
    CheckpointContent again;
    again.take_origin(checkpoint.open(TensorSet::weights));
    EXPECT_EQ(again.config_json, content.config_json);
    EXPECT_EQ(again.tokenizer_json, content.tokenizer_json);
    EXPECT_EQ(again.tokenizer_sha256, content.tokenizer_sha256);
    EXPECT_EQ(again.source, content.source);
}

TEST_F(CheckpointTest, is_a_weights_file_with_each_tensor_once_and_whole) {
    save_by(tests::ranks(), toy_content(1));
    const WeightsFile weights(path(1));
    EXPECT_EQ(weights.config_json(), R"({"model_type": "llama"})");
    ASSERT_EQ(weights.tensors().size(), 6U);
    ASSERT_NE(weights.find("model.embed.weight"), nullptr);
    EXPECT_EQ(weights.find("model.embed.weight")->shape, (base::Shape{61, 7}));
    EXPECT_EQ(weights.find("model.layers.0.deep.weight")->shape, (base::Shape{3, 5, 11}));
    if (world.first() && std::system("command -v h5dump > /dev/null") == 0) {
        const std::string command =
            "h5dump -d /optimizer/second_moment/model/embed/weight '" + path(1) + "' > /dev/null";
        EXPECT_EQ(std::system(command.c_str()), 0);
    }
}

TEST_F(CheckpointTest, without_moments_there_are_none_and_who_asks_is_refused) {
    save_by(tests::ranks(), toy_content(2, false));
    const Checkpoint checkpoint(path(2));
    EXPECT_FALSE(checkpoint.has_moments());
    expect_toy(checkpoint, 3);
    expect_refused({path(2), "/optimizer", "is missing"},
                   [&] { checkpoint.open(TensorSet::first_moment); });
}

TEST_F(CheckpointTest, second_replica_writes_nothing) {
    if (tests::ranks() % 2 != 0) {
        GTEST_SKIP() << "needs an even number of ranks";
    }
    const int shard = tests::ranks() / 2;
    const CheckpointContent content = toy_content(4);
    CheckpointWriter writer(world, directory / "", content);
    writer.fill(
        [&] { write_parts(writer, content, world.rank() % shard, shard, world.rank() < shard); });
    EXPECT_EQ(writer.bytes_written() > 0, world.rank() < shard);
    EXPECT_EQ(writer.finish(0), "");
    expect_toy(Checkpoint(path(4)), 3);
}

TEST_F(CheckpointTest, old_ones_go_when_the_new_one_is_complete_and_later_ones_never) {
    for (const std::int64_t step : {9, 1, 2, 3, 4}) {
        save_by(tests::ranks(), toy_content(step), step == 4 ? 2 : 0);
    }
    EXPECT_TRUE(there(9) && there(4) && there(3));
    EXPECT_FALSE(there(2) || there(1));
}

TEST_F(CheckpointTest, error_of_one_rank_is_everybodys_and_leaves_the_last_complete_one) {
    save_by(tests::ranks(), toy_content(1));
    const CheckpointContent content = toy_content(2);
    const int last = tests::ranks() - 1;
    {
        CheckpointWriter writer(world, directory / "", content);
        EXPECT_TRUE(part_there(2));
        expect_error(base::Status::failed,
                     {path(2), "was not written", "no place for them", "model/norm",
                      "last complete one is " + path(1)},
                     [&] {
                         writer.fill([&] {
                             write_parts(writer, content, world.rank(), world.size());
                             if (world.rank() == last) {
                                 const std::vector<float> two(2);
                                 writer.write(TensorSet::weights, "model.norm.weight", 299, two);
                             }
                         });
                     });
    }
    world.barrier();
    EXPECT_FALSE(part_there(2) || there(2));
    EXPECT_EQ(find_checkpoint(directory / "").path, path(1));
    save_by(tests::ranks(), content); // the next one is not in its way
    expect_toy(Checkpoint(path(2)), 2);
}

TEST_F(CheckpointTest, save_that_another_run_is_at_is_left_alone) {
    {
        const CheckpointWriter other(world, directory / "", toy_content(2));
        save_by(tests::ranks(), toy_content(3), 1);
        EXPECT_TRUE(part_there(2));
        expect_error(base::Status::failed, {path(2), "is another run writing it?"},
                     [&] { const CheckpointWriter same(world, directory / "", toy_content(2)); });
        EXPECT_TRUE(part_there(2));
        world.barrier();
    }
    world.barrier();
    EXPECT_FALSE(part_there(2)); // it was given up
    EXPECT_TRUE(there(3));
}

TEST_F(CheckpointTest, folder_that_is_not_there_is_told_with_file_and_bytes) {
    const CheckpointContent content = toy_content(2);
    expect_error(base::Status::failed,
                 {directory / "none/step-00000002.h5", std::to_string(bytes_of(content).count),
                  "there is none before it"},
                 [&] { const CheckpointWriter writer(world, directory / "none", content); });
}

TEST_F(CheckpointTest, newest_complete_one_is_found_and_the_skipped_are_told) {
    save_by(1, toy_content(5));
    if (world.first()) {
        const mesh::Control self(MPI_COMM_SELF);
        save_toy(self, directory / "", toy_content(6));
        std::filesystem::rename(path(6), path(10)); // another step than its name's
        save_toy(self, directory / "", toy_content(6));
        const std::string whole = slurp(path(6));
        spill(path(6), whole.substr(0, whole.size() - 1)); // cut off by one byte
        spill(path(7), "no HDF5 file");
        Writer(path(8)).attribute("format", std::string("something.else"));
        std::filesystem::create_directory(path(9));
        spill(path(11) + ".part", whole);
        spill(path(4), "older ones are not looked at");
        spill(directory / "step-12.h5", "no name of ours");
        const FoundCheckpoint found = find_checkpoint(directory / "");
        EXPECT_EQ(found.path, path(5));
        EXPECT_EQ(found.step, 5);
        const std::vector<std::pair<std::string, std::string>> expected{
            {path(11) + ".part", "not complete"}, {path(10), "holds step 6"},
            {path(9), "not a regular file"},      {path(8), "something.else"},
            {path(7), "not an HDF5 file"},        {path(6), "shorter than its own header says"}};
        ASSERT_EQ(found.skipped.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(found.skipped[i].path, expected[i].first);
            EXPECT_NE(found.skipped[i].why.find(expected[i].second), std::string::npos)
                << found.skipped[i].why;
        }
    }
    world.barrier();
}

TEST_F(CheckpointTest, g1_file_without_its_mark_is_refused_by_name_too) {
    save_by(1, toy_content(1));
    if (world.first()) {
        File file = open_shared(path(1), MPI_COMM_SELF);
        overwrite_attribute(file.handle(), "complete", std::int64_t{0});
        close(file, path(1));
        expect_refused({path(1), "is not complete"}, [&] { const Checkpoint c(path(1)); });
        expect_refused({path(1), "is not complete"}, [&] { const WeightsFile w(path(1)); });
        EXPECT_EQ(find_checkpoint(directory / "").path, "");
    }
    world.barrier();
}

TEST_F(CheckpointTest, weights_file_is_no_checkpoint) {
    const std::string plain = directory / ("w" + std::to_string(world.rank()) + ".h5");
    {
        Writer file(plain);
        file.attribute("format", std::string("foregather.weights"));
        file.attribute("format_version", std::int64_t{1});
        file.text("config", "{}");
        file.put("weights/a", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2}, std::vector<float>(2));
    }
    expect_refused({plain, "no checkpoint", "/train is missing"},
                   [&] { const Checkpoint checkpoint(plain); });
}

} // namespace
} // namespace foregather::io
