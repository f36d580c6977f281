// SPDX-License-Identifier: Apache-2.0
// Parts go down to the file and come up from it unit by unit. Where a run begins is decided by
// checkpoint_start.cpp.
#include "checkpoints.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <foregather/base/error.hpp>
#include <foregather/io/checkpoint_folder.hpp>
#include <foregather/shard/load.hpp>
#include <foregather/shard/save.hpp>

#include "weights_home.hpp"

namespace foregather::job {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void fill_with_zero(shard::Destination& to) {
    for (base::Elements left = to.size(); left > 0;) {
        const base::Slab piece = to.next(std::min(left, to.most()));
        std::memset(piece.data, 0, static_cast<std::size_t>(piece.bytes().count));
        left -= piece.n;
    }
    to.end();
}

} // namespace

Checkpoints::Checkpoints(const mesh::Control& control, mesh::Watch& watch,
                         deck::CheckpointSection section, io::CheckpointContent content,
                         ShardMemory memory, base::Bytes staging)
    : control_(control), watch_(watch), section_(std::move(section)), content_(std::move(content)),
      memory_(std::move(memory)), staging_(staging), download_(memory_.device, staging) {}

const ShardMemory::Part& Checkpoints::part_of(io::TensorSet set) const {
    switch (set) {
    case io::TensorSet::first_moment:
        return memory_.first_moment;
    case io::TensorSet::second_moment:
        return memory_.second_moment;
    case io::TensorSet::weights:
        break;
    }
    return memory_.weights;
}

// With one replica there is nothing to compare, and nothing is read.
void Checkpoints::refuse_differing_replicas() {
    if (control_.size() == memory_.shard_size) {
        return;
    }
    shard::Checksum sum;
    control_.together([&] {
        for (const io::TensorSet set : io::all_tensor_sets) {
            for (std::size_t u = 0; u < memory_.units.size(); ++u) {
                download_.read(part_of(set)(static_cast<base::UnitId>(u)),
                               [&](base::Elements, base::View<const float> v) { sum.add(v); });
            }
        }
    });
    const auto sums = control_.gather(sum.value());
    const std::string differ = shard::differing_replicas(sums, memory_.shard_size);
    if (differ.empty()) {
        return;
    }
    control_.together([&] {
        const std::int64_t step = content_.state.step;
        const std::string before = io::checkpoint_before(section_.directory, step + 1);
        base::fail("no checkpoint of step " + std::to_string(step) + " was written: " + differ +
                   ". They must hold the same bits: a device or its memory may be at fault; " +
                   (before.empty() ? "there is no checkpoint before it"
                                   : "the last complete one is " + before));
    });
}

void Checkpoints::write_own(io::CheckpointWriter& writer) {
    for (const io::TensorSet set : io::all_tensor_sets) {
        for (std::size_t u = 0; u < memory_.units.size(); ++u) {
            download_.read(part_of(set)(static_cast<base::UnitId>(u)),
                           [&](base::Elements first, base::View<const float> values) {
                               shard::save_piece(writer, set, memory_.units[u],
                                                 memory_.plan.units[u].layout, memory_.rank, first,
                                                 values);
                           });
        }
    }
}

Checkpoints::Saved Checkpoints::save(const io::TrainingState& state, bool keep_older) {
    const std::int64_t begin = memory_.device.now_ns();
    content_.state = state;
    content_.moments = true;
    refuse_differing_replicas();
    io::CheckpointWriter writer(control_, section_.directory, content_);
    writer.fill([&] {
        if (memory_.saves) {
            watch_.file_work(
                "writing " + writer.path(), [&] { return writer.bytes_written(); },
                [&] { write_own(writer); });
        }
    });
    watch_.doing("completing " + writer.path() + ", with the other ranks");
    Saved saved{writer.path(),
                writer.finish(keep_older ? 0 : section_.keep),
                0,
                {writer.bytes_written()},
                {}};
    saved.seconds = seconds(memory_.device.now_ns() - begin);
    if (control_.first()) {
        std::error_code vanished; // it may be gone again: then its size is not told
        const auto size = std::filesystem::file_size(saved.path, vanished);
        saved.file = {vanished ? 0 : static_cast<std::int64_t>(size)};
    }
    ++saves_;
    save_seconds_ += saved.seconds;
    bytes_written_ += saved.bytes;
    return saved;
}

// Calls fill(destination, unit) for each unit.
template <class Fill>
void Checkpoints::fill_units(io::TensorSet set, const Fill& fill) {
    std::optional<shard::Upload> upload; // to memory that the host cannot write
    if (!memory_.device.host_memory()) {
        upload.emplace(memory_.device, staging_);
    }
    for (std::size_t u = 0; u < memory_.units.size(); ++u) {
        const base::Slab part(part_of(set)(static_cast<base::UnitId>(u)));
        shard::InPlace in_place(part);
        if (upload) {
            upload->begin(part);
        }
        fill(upload ? static_cast<shard::Destination&>(*upload) : in_place, u);
    }
    if (upload) {
        upload->sync();
    }
}

void Checkpoints::read(io::WeightsFile& file, io::TensorSet set) {
    watch_.file_work(
        std::string("reading ") + io::group_of(set) + " of " + file.path(),
        [&] { return file.bytes_read(); },
        [&] {
            shard::Loader loader(file, staging_);
            fill_units(set, [&](shard::Destination& to, std::size_t unit) {
                loader.load(memory_.units[unit], memory_.plan.units[unit].layout, memory_.rank, to);
            });
            if (memory_.saves) { // else another replica's rank tells the same
                tell_not_finite(loader,
                                set == io::TensorSet::weights
                                    ? file.path()
                                    : file.path() + ": " + io::group_of(set),
                                memory_.rank);
            }
        });
}

void Checkpoints::clear(io::TensorSet set) {
    fill_units(set, [](shard::Destination& to, std::size_t) { fill_with_zero(to); });
}

Checkpoints::Loaded Checkpoints::load(const io::Checkpoint& from) {
    const std::int64_t begin = memory_.device.now_ns();
    Loaded loaded{from.state(), section_.load_optimizer && from.has_moments(), "", 0, {}};
    control_.together([&] {
        for (const io::TensorSet set : io::all_tensor_sets) {
            if (set == io::TensorSet::weights || loaded.moments) {
                io::WeightsFile file = from.open(set);
                read(file, set);
                loaded.bytes += {file.bytes_read()};
            } else {
                clear(set);
            }
        }
    });
    loaded.what = "weights and both moments";
    if (!loaded.moments) {
        loaded.state.updates = 0;
        loaded.what =
            std::string("weights alone, the optimizer starts anew: ") +
            (from.has_moments() ? "checkpoint.load_optimizer = false" : "it has no moments");
    }
    loaded.seconds = seconds(memory_.device.now_ns() - begin);
    return loaded;
}

double Checkpoints::begin(InitialWeights& weights) {
    const std::int64_t begin = memory_.device.now_ns();
    control_.together([&] {
        fill_units(io::TensorSet::weights, [&](shard::Destination& to, std::size_t unit) {
            weights.fill(memory_.units[unit], memory_.plan.units[unit].layout, memory_.rank, to);
        });
        clear(io::TensorSet::first_moment);
        clear(io::TensorSet::second_moment);
    });
    return seconds(memory_.device.now_ns() - begin);
}

double Checkpoints::begin(io::WeightsFile& weights) {
    const std::int64_t begin = memory_.device.now_ns();
    control_.together([&] {
        read(weights, io::TensorSet::weights);
        clear(io::TensorSet::first_moment);
        clear(io::TensorSet::second_moment);
    });
    return seconds(memory_.device.now_ns() - begin);
}

} // namespace foregather::job
