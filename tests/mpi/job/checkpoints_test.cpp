// SPDX-License-Identifier: Apache-2.0
// Weights and moments from the memory of any number of ranks into a checkpoint and back into that
// of any other, bit for bit, on a device whose memory the host reads and on one where it does not;
// and which checkpoint a run begins with.
#include "../../../src/job/checkpoints.hpp"

#include <fstream>
#include <limits>
#include <map>

#include "../../support/apart_device.hpp"
#include "../../support/mpi_test.hpp"
#include "../../unit/io/checkpoint_fixture.hpp"
#include "../../unit/io/results_fixture.hpp"

namespace foregather::job {
namespace {

using namespace io::testing;
using io::TensorSet;

constexpr const char* place = "t.deck:3: checkpoint.resume";

// What a rank holds of the toy, on a device of its own.
class Holding {
public:
    Holding(bool apart, int rank, int ranks, bool saves = true)
        : device_(apart ? std::make_unique<tests::ApartDevice>(7, std::chrono::microseconds(100))
                        : device::make_host_device(1)),
          plan_(units_, ranks), rank_(rank), ranks_(ranks), saves_(saves) {
        for (const TensorSet set : io::all_tensor_sets) {
            arenas_[set] = device::Buffer<float>(*device_, plan_.shard_elements, "a test");
            std::fill(arenas_[set].view().begin(), arenas_[set].view().end(), -7.0F);
        }
    }
    base::View<float> part(TensorSet set, base::UnitId unit) const {
        const auto& at = plan_.units[static_cast<std::size_t>(unit)];
        return arenas_.at(set).view().subspan(static_cast<std::size_t>(at.in_shard_arena),
                                              static_cast<std::size_t>(at.layout.per_rank()));
    }
    ShardMemory memory() const {
        const auto of = [this](TensorSet set) {
            return [this, set](base::UnitId unit) { return part(set, unit); };
        };
        return {units_,
                plan_,
                rank_,
                ranks_,
                saves_,
                of(TensorSet::weights),
                of(TensorSet::first_moment),
                of(TensorSet::second_moment),
                *device_};
    }
    void fill(std::int64_t step) const {
        for_each([&](base::View<float> mine, const std::vector<float>& toy,
                     TensorSet) { std::copy(toy.begin(), toy.end(), mine.begin()); },
                 step);
    }
    void expect(std::int64_t step, bool moments = true) const {
        for_each(
            [&](base::View<float> mine, const std::vector<float>& toy, TensorSet set) {
                const bool zero = !moments && set != TensorSet::weights;
                EXPECT_TRUE(same_bits({mine.begin(), mine.end()},
                                      zero ? std::vector<float>(toy.size()) : toy))
                    << io::group_of(set) << ", rank " << rank_ << " of " << ranks_;
            },
            step);
    }

private:
    void for_each(
        const std::function<void(base::View<float>, const std::vector<float>&, TensorSet)>& use,
        std::int64_t step) const {
        for (const TensorSet set : io::all_tensor_sets) {
            for (std::size_t u = 0; u < units_.size(); ++u) {
                use(part(set, static_cast<base::UnitId>(u)),
                    toy_part(set, units_[u], plan_.units[u].layout, rank_, step), set);
            }
        }
    }

    std::unique_ptr<device::Device> device_;
    std::vector<shard::UnitSpec> units_ = toy_units();
    shard::ArenaPlan plan_;
    int rank_, ranks_;
    bool saves_;
    std::map<TensorSet, device::Buffer<float>> arenas_;
};

class CheckpointsTest : public ::testing::Test {
protected:
    // Runs `work` on the first `ranks` of the job; waits for them.
    void by(int ranks, const std::function<void(const mesh::Control&)>& work) {
        MPI_Comm comm = MPI_COMM_NULL;
        mesh::check(
            MPI_Comm_split(MPI_COMM_WORLD, tests::rank() < ranks ? 0 : MPI_UNDEFINED, 0, &comm),
            "split the ranks of a test");
        if (const mesh::Comm some(comm); some) {
            const mesh::Control control(some.handle());
            work(control);
        }
        world.barrier();
    }
    deck::CheckpointSection section(std::int64_t keep = 0) const {
        deck::CheckpointSection s;
        s.directory = directory / "";
        s.keep = keep;
        return s;
    }
    Checkpoints checkpoints(const mesh::Control& control, const ShardMemory& memory,
                            const deck::CheckpointSection& s) {
        constexpr base::Bytes staging{52}; // 13 elements: all parts go in many pieces
        return {control, watch, s, toy_content(0), memory, staging};
    }
    void save(const mesh::Control& control, std::int64_t step, bool apart = false) {
        const Holding holding(apart, control.rank(), control.size());
        holding.fill(step);
        Checkpoints file = checkpoints(control, holding.memory(), section());
        const auto saved = file.save(toy_content(step).state);
        EXPECT_EQ(saved.path, path(step));
        EXPECT_EQ(saved.note, "");
        EXPECT_GT(saved.seconds, 0);
        EXPECT_EQ(file.saves(), 1);
    }
    std::string path(std::int64_t step) const { return directory / io::checkpoint_name(step); }

    const mesh::Control world{MPI_COMM_WORLD};
    const SharedDirectory directory{world};
    const mesh::Topology topology{0, "mesh.shard"};
    mesh::Watch watch{topology, world, 60};
};

class Devices : public CheckpointsTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Apart, Devices, ::testing::Values(false, true));

TEST_P(Devices, any_number_of_ranks_goes_on_from_what_any_other_saved) {
    for (int savers = 1; savers <= tests::ranks(); ++savers) {
        by(savers, [&](const auto& control) { save(control, savers, GetParam()); });
        for (int loaders = 1; loaders <= tests::ranks(); ++loaders) {
            by(loaders, [&](const auto& control) {
                const Holding holding(GetParam(), control.rank(), loaders);
                Checkpoints file = checkpoints(control, holding.memory(), section());
                const auto loaded = file.load(io::Checkpoint(path(savers)));
                EXPECT_TRUE(loaded.moments);
                EXPECT_EQ(loaded.state, toy_content(savers).state);
                EXPECT_EQ(loaded.what, "weights and both moments");
                holding.expect(savers);
            });
        }
    }
}

TEST_P(Devices, file_is_the_same_to_the_byte) {
    by(1, [&](const auto& control) {
        io::testing::save_toy(control, directory / "", toy_content(3));
    });
    const std::string expected = slurp(path(3));
    world.barrier();
    by(tests::ranks(), [&](const auto& control) { save(control, 3, GetParam()); });
    EXPECT_TRUE(slurp(path(3)) == expected);
}

TEST_P(Devices, without_the_optimizer_moments_are_zero_and_updates_count_anew) {
    by(tests::ranks(), [&](const auto& control) { save(control, 4); });
    const Holding holding(GetParam(), world.rank(), world.size());
    deck::CheckpointSection s = section();
    s.load_optimizer = false;
    const auto loaded = checkpoints(world, holding.memory(), s).load(io::Checkpoint(path(4)));
    EXPECT_FALSE(loaded.moments);
    EXPECT_EQ(loaded.state.updates, 0);
    EXPECT_EQ(loaded.state.step, 4);
    EXPECT_NE(loaded.what.find("checkpoint.load_optimizer = false"), std::string::npos);
    holding.expect(4, false);
}

TEST_P(Devices, run_that_starts_anew_has_the_files_weights_and_no_moments) {
    by(tests::ranks(), [&](const auto& control) { save(control, 5); });
    const Holding holding(GetParam(), world.rank(), world.size());
    io::WeightsFile weights(path(5));
    checkpoints(world, holding.memory(), section()).begin(weights);
    holding.expect(5, false);
}

TEST_F(CheckpointsTest, replicas_save_once_and_only_when_they_hold_the_same_bits) {
    if (tests::ranks() % 2 != 0) {
        GTEST_SKIP() << "needs an even number of ranks";
    }
    const int shard = tests::ranks() / 2;
    for (const bool apart : {false, true}) {
        const bool first = world.rank() < shard;
        const Holding holding(apart, world.rank() % shard, shard, first);
        holding.fill(6);
        Checkpoints file = checkpoints(world, holding.memory(), section());
        EXPECT_EQ(file.save(toy_content(6).state).bytes.count > 0, first);
        io::testing::expect_toy(io::Checkpoint(path(6)), 3);
        if (world.rank() == shard) { // its last element, which may be padding, counts too
            holding.part(TensorSet::second_moment, 2).back() += 1;
        }
        expect_error(base::Status::failed,
                     {"step 7", "rank " + std::to_string(shard) + " from rank 0",
                      "last complete one is " + path(6)},
                     [&] { file.save(toy_content(7).state); });
        EXPECT_FALSE(std::filesystem::exists(path(7)) ||
                     std::filesystem::exists(path(7) + ".part"));
        world.barrier();
    }
}

TEST_F(CheckpointsTest, folder_that_vanished_ends_the_job_on_every_rank) {
    const Holding holding(false, world.rank(), world.size());
    deck::CheckpointSection s = section();
    s.directory = directory / "gone";
    Checkpoints file = checkpoints(world, holding.memory(), s);
    expect_error(base::Status::failed, {s.directory + "/step-00000002.h5", "was not written"},
                 [&] { file.save(toy_content(2).state); });
}

TEST_F(CheckpointsTest, auto_takes_the_newest_complete_one_and_says_what_it_skipped) {
    const auto found = [&] { return find_start(section(), place, world); };
    StartFrom start = found();
    EXPECT_FALSE(start.checkpoint);
    if (world.first()) {
        ASSERT_EQ(start.notes.size(), 1U);
        EXPECT_NE(start.notes[0].find("starts anew"), std::string::npos);
    }
    by(1, [&](const auto& control) {
        save(control, 8);
        std::ofstream(path(9) + ".part") << "a save that was killed";
        std::ofstream(path(10)) << "no checkpoint";
    });
    start = found();
    ASSERT_TRUE(start.checkpoint);
    EXPECT_EQ(start.checkpoint->path(), path(8));
    if (world.first()) {
        ASSERT_EQ(start.notes.size(), 3U);
        EXPECT_EQ(start.notes[0], "training goes on from " + path(8));
        EXPECT_NE(start.notes[1].find(path(10) + ": "), std::string::npos);
        EXPECT_NE(start.notes[2].find(path(9) + ".part: not complete"), std::string::npos);
    }
}

TEST_F(CheckpointsTest, no_run_begins_where_it_would_take_the_place_of_anothers_checkpoints) {
    const std::string other = directory / "other";
    by(1, [&](const auto& control) {
        save(control, 2);
        save(control, 4);
        std::filesystem::create_directory(other);
        std::filesystem::copy(path(2), other + "/mine.h5");
    });
    const auto with = [&](const std::string& resume, const std::string& folder) {
        deck::CheckpointSection s = section();
        s.resume = resume;
        s.directory = folder;
        return find_start(s, place, world);
    };
    const std::string here = directory / "", none = directory / "none";
    expect_refused({place, "= none", path(4), "resume = auto"}, [&] { with("none", here); });
    expect_refused({place, path(4)}, [&] { with(path(2), here); });
    expect_refused({place, path(4)}, [&] { with(other + "/mine.h5", here); });
    EXPECT_FALSE(with("none", none).checkpoint);
    EXPECT_FALSE(with("none", "").checkpoint);
    EXPECT_EQ(with(path(4), here).checkpoint->state().step, 4);
    EXPECT_EQ(with(path(2), none).checkpoint->path(), path(2));
    EXPECT_EQ(with(other + "/mine.h5", other).checkpoint->state().step, 2);
    expect_refused({place, "cannot be resumed", directory / "not there"},
                   [&] { with(directory / "not there", none); });
}

TEST_F(CheckpointsTest, checkpoint_of_another_model_is_refused_with_all_that_differs) {
    by(1, [&](const auto& control) { save(control, 1); });
    const io::Checkpoint checkpoint(path(1));
    auto tensors = shard::tensors_of(toy_units());
    refuse_other_tensors(checkpoint, tensors);
    tensors[0].shape[0] += 1;
    tensors[1].name = "more";
    expect_refused({"model.embed.weight has another shape", "more is missing",
                    "model.layers.0.wide.weight is not a tensor"},
                   [&] { refuse_other_tensors(checkpoint, tensors); });
}

TEST_F(CheckpointsTest, disk_plan_counts_what_lies_there_at_once) {
    by(1, [&](const auto& control) {
        save(control, 2);
        save(control, 4);
    });
    deck::Sections s;
    s.output.file = directory / "r.h5";
    s.train.steps = 105;
    s.train.evaluate_every = 2;
    s.checkpoint = section();
    s.checkpoint.every = 10;
    const auto plan = [&](std::int64_t from) { return plan_disk(s, toy_content(0), {1000}, from); };
    EXPECT_EQ(plan(0).saves, 11); // 10, 20, ... 100, 105
    EXPECT_EQ(plan(0).more, 11);
    EXPECT_EQ(plan(55).saves, 6);
    EXPECT_EQ(plan(105).saves, 0);
    EXPECT_TRUE(plan(0).one_disk);
    s.checkpoint.keep = 3; // of two: a third, and a fourth before the first goes
    EXPECT_EQ(plan(0).more, 2);
    s.checkpoint.keep = 1;
    EXPECT_EQ(plan(0).more, 1);
    s.checkpoint.directory = directory / "not/there/yet";
    EXPECT_EQ(plan(0).more, 2);
    s.checkpoint.every = 0;
    EXPECT_EQ(plan(104).more, 1);
    const DiskPlan fits = plan(0);
    EXPECT_EQ(fits.problem(), "");
    EXPECT_GE(fits.checkpoint, io::bytes_of(toy_content(105)));
    EXPECT_FALSE(std::filesystem::exists(directory / "not"));
    DiskPlan full = fits;
    full.room_for_checkpoints = full.checkpoints();
    EXPECT_NE(full.problem().find("checkpoint.keep"), std::string::npos); // results come beside
    full.one_disk = false;
    EXPECT_EQ(full.problem(), "");
    full.room_for_results = {999};
    EXPECT_NE(full.problem().find("results file"), std::string::npos);
    world.barrier();
}

} // namespace
} // namespace foregather::job
