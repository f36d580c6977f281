// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training run: which one it starts from, whether those to come fit on disk, and
// the way of weights and moments from a rank's memory into a file and back. When one is saved, and
// whether a stored run and this one are the same, is decided elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <foregather/deck/sections.hpp>
#include <foregather/io/checkpoint_file.hpp>
#include <foregather/mesh/watch.hpp>
#include <foregather/shard/download.hpp>
#include <foregather/shard/layout.hpp>

#include "initial_weights.hpp"
#include "limits.hpp"

namespace foregather::job {

// Which checkpoint a run begins with.
struct FoundStart {
    std::string path;               // "": none, it starts anew
    std::vector<std::string> notes; // to be told: what was found, what was skipped and why
};
// By checkpoint.resume: `auto`, the newest in checkpoint.directory that is complete; `none`; or a
// file. Throws Error(refused) for a file that is no whole checkpoint, and where the run would take
// the place of checkpoints that it does not go on from: with `none` in a folder that holds some,
// with a file when the folder holds later ones, or any and the file is of another folder. `place`:
// of the key checkpoint.resume, for messages. Opens files read-only; for one rank.
FoundStart look_for_start(const deck::CheckpointSection& section, const std::string& place);

struct StartFrom {
    std::optional<io::Checkpoint> checkpoint; // on every rank
    std::vector<std::string> notes;           // rank 0
};
// The same by rank 0, opened by every rank. Collective; blocks. Throws AgreedError(refused).
StartFrom find_start(const deck::CheckpointSection& section, const std::string& place,
                     const mesh::Control& control);

// Throws Error(refused) with all tensors that a checkpoint lacks, has beside, or has in another
// shape. Not collective.
void refuse_other_tensors(const io::Checkpoint& checkpoint,
                          const std::vector<base::TensorSpec>& tensors);

// What a run writes, against what there is room for.
struct DiskPlan {
    base::Bytes results, checkpoint; // the results file; one checkpoint, at most
    std::int64_t saves = 0;          // of this start
    std::int64_t more = 0;           // checkpoints at a time, beyond those that are there now
    base::Bytes room_for_results, room_for_checkpoints;
    bool one_disk = false; // both lie on one file system

    base::Bytes checkpoints() const { return more * checkpoint; }
    std::vector<std::string> lines() const; // for people
    std::string problem() const;            // "": it fits
};
// For one rank; creates nothing: of a folder that is not there yet, its parent's file system
// counts. `content` without a state; from_step: steps that were taken before this start.
DiskPlan plan_disk(const deck::Sections& sections, io::CheckpointContent content,
                   base::Bytes results, std::int64_t from_step);

// What a rank holds of the model while it trains: fp32 parts of units, in memory of `device`.
struct ShardMemory {
    using Part = std::function<base::View<float>(base::UnitId)>; // [plan's per_rank() of the unit]

    const std::vector<shard::UnitSpec>& units;
    const shard::ArenaPlan& plan;
    int rank = 0, shard_size = 1; // of the shard group
    bool saves = true;            // false: another replica's rank writes the same
    Part weights, first_moment, second_moment;
    device::Device& device;
};

// Collective functions are called by every rank of `control`, by the main thread, while nothing
// works on the memory. They throw AgreedError.
class Checkpoints {
public:
    // `content`: what all checkpoints of the run have, without a state. Allocates two buffers of
    // `staging` for saves, where the host cannot read the parts. All that is handed over by
    // reference, also in `memory`, must outlive it.
    Checkpoints(const mesh::Control& control, mesh::Watch& watch, deck::CheckpointSection section,
                io::CheckpointContent content, ShardMemory memory,
                base::Bytes staging = {staging_bytes});

    struct Saved {
        std::string path;
        std::string note; // "", or which old checkpoint could not be removed
        double seconds = 0;
        base::Bytes bytes; // that this rank wrote
        base::Bytes file;  // its size; rank 0
    };
    // Collective; blocks. Writes DIRECTORY/step-<step>.h5 as io::CheckpointWriter does, when all
    // replicas hold the same bits; else, and on an error of any rank, throws failed. What ranks
    // write is watched for progress; laying out and the last flush count no bytes and are not.
    // `keep_older`: none is removed, whatever checkpoint.keep says.
    Saved save(const io::TrainingState& state, bool keep_older = false);

    struct Loaded {
        io::TrainingState state; // to go on from
        bool moments = false;    // loaded; else they are zero, and state.updates is 0
        std::string what;        // the same in words
        double seconds = 0;
        base::Bytes bytes; // that this rank read
    };
    // Collective; blocks. Fills the weights, and with checkpoint.load_optimizer and where it has
    // them both moments, from a checkpoint of any number of ranks. Bits are those that were saved.
    Loaded load(const io::Checkpoint& from);
    // Collective; blocks. Fills the weights from a weights file of any type, and the moments with
    // zero. Returns seconds.
    double begin(io::WeightsFile& weights);
    // The same of random weights.
    double begin(InitialWeights& weights);

    std::int64_t saves() const { return saves_; }
    double save_seconds() const { return save_seconds_; } // of all saves
    base::Bytes bytes_written() const { return bytes_written_; }

private:
    const ShardMemory::Part& part_of(io::TensorSet set) const;
    void refuse_differing_replicas();
    void write_own(io::CheckpointWriter& writer);
    void read(io::WeightsFile& file, io::TensorSet set);
    void clear(io::TensorSet set);
    template <class Fill>
    void fill_units(io::TensorSet set, const Fill& fill);

    const mesh::Control& control_;
    mesh::Watch& watch_;
    deck::CheckpointSection section_;
    io::CheckpointContent content_;
    ShardMemory memory_;
    base::Bytes staging_;
    shard::Download download_;
    std::int64_t saves_ = 0;
    double save_seconds_ = 0;
    base::Bytes bytes_written_;
};

} // namespace foregather::job
