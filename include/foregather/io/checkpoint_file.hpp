// SPDX-License-Identifier: Apache-2.0
// A checkpoint: a weights file of whole fp32 tensors with both moments and the state of training,
// written in parallel under a temporary name. Which rank holds which elements is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/digest.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/mesh/control.hpp>

namespace foregather::io {

// What is stored of every tensor.
enum class TensorSet { weights, first_moment, second_moment };
inline constexpr TensorSet all_tensor_sets[] = {TensorSet::weights, TensorSet::first_moment,
                                                TensorSet::second_moment};
// Its group: "weights", "optimizer/first_moment", "optimizer/second_moment".
const char* group_of(TensorSet set);

// All that training goes on from but tensors. Whatever is random follows from the seed and these
// counts alone: there is no other random state.
struct TrainingState {
    std::int64_t step = 0;      // steps taken
    std::int64_t updates = 0;   // those applied: the number of AdamW's last step
    std::int64_t bad_steps = 0; // in a row at the end, not applied
    std::int64_t epoch = 0;     // data position: epochs run through,
    std::int64_t place = 0;     // and items used of the one that runs
    std::int64_t seed = 0;
    // What must be the same for a run that goes on: key and value, in words.
    std::vector<std::pair<std::string, std::string>> settings;
    LossHistory history;           // one entry a step, from the first on
    EvaluationHistory evaluations; // one entry an evaluation

    friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

struct CheckpointContent {
    std::vector<base::TensorSpec> tensors; // each once, also a tied one
    bool moments = true;
    std::string config_json;
    std::string tokenizer_json;           // "": none is stored
    std::string tokenizer_sha256, source; // "": unknown
    TrainingState state;

    // Takes what a checkpoint keeps of the weights file that training began with.
    void take_origin(const WeightsFile& weights);
};
// What a checkpoint takes on disk at most.
base::Bytes bytes_of(const CheckpointContent& content);

// All members are called by the main thread. Those called collective are, by every rank of
// `control`; on an error of any of them the temporary file is removed, every rank throws the same
// AgreedError(failed), which names the file, the bytes and the last complete checkpoint, and the
// writer is done with.
class CheckpointWriter {
public:
    // Collective; blocks. Rank 0 checks the room, lays out DIRECTORY/step-<step>.h5.part (see
    // checkpoint_folder.hpp) with all but tensors, and takes its room on disk. No write is larger
    // than piece_bytes.
    CheckpointWriter(const mesh::Control& control, const std::string& directory,
                     const CheckpointContent& content,
                     std::int64_t piece_bytes = default_piece_bytes);
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // Collective; blocks. Runs `work`, which calls write() and no collective, on every rank. Ranks
    // that hold what others write too (replicas) run work that writes nothing.
    void fill(const std::function<void()>& work);
    // Elements [first, first + values.size()) of a tensor in row-major order. Independent of other
    // ranks; blocks. Between them ranks write every element once.
    void write(TensorSet set, const std::string& tensor, base::Elements first,
               base::View<const float> values);

    // Collective; blocks. Flushes all ranks' data, marks the file complete, gives it its name, and
    // removes older checkpoints until, with this one, `keep` are left (0: all are kept). Returns
    // what could not be removed, in words, "" when nothing was in the way.
    std::string finish(std::int64_t keep);

    const std::string& path() const { return path_; } // its final name
    // May be called from any thread, as by a watchdog.
    std::int64_t bytes_written() const { return bytes_written_.count(); }

private:
    struct Shared;
    void lay_out(const CheckpointContent& content);
    void complete();
    void guarded(const std::function<void()>& work);

    const mesh::Control& control_;
    std::string directory_, path_, part_path_;
    std::int64_t step_;
    std::int64_t piece_bytes_, total_bytes_;
    std::vector<base::TensorSpec> tensors_; // sorted by name
    Descriptor claim_;                      // rank 0
    std::unique_ptr<Shared> shared_;
    ByteCount bytes_written_;
};

// A complete checkpoint, opened and checked by this rank alone.
class Checkpoint {
public:
    // Throws Error(refused) when it is not there, not a checkpoint, not complete or torn: every
    // tensor must have its place within the file, and moments those of the weights.
    explicit Checkpoint(const std::string& path);

    const std::string& path() const { return path_; }
    const TrainingState& state() const { return state_; }
    bool has_moments() const { return has_moments_; }
    // The tensors of a set, to be read like weights: shard::Loader gives each rank its part,
    // whatever the number of ranks. Throws Error(refused) for moments that are not there,
    // Error(failed) when the file is no longer the one that was checked.
    WeightsFile open(TensorSet set, std::int64_t piece_bytes = default_piece_bytes) const;

private:
    std::string path_;
    FileFacts facts_;
    TrainingState state_;
    bool has_moments_ = false;
};

} // namespace foregather::io
