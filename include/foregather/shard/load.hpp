// SPDX-License-Identifier: Apache-2.0
// Reading a rank's part of a unit from the weights file: only the rows that touch it, piece by
// piece.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <foregather/base/view.hpp>
#include <foregather/device/device.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::shard {

// Where the elements of a part go, from its first to its last.
class Destination {
public:
    virtual ~Destination() = default;

    virtual base::Elements size() const = 0; // of the part
    virtual base::DType type() const = 0;
    // Host memory for the next n elements, n <= most(): filled before the next call.
    virtual base::Slab next(base::Elements n) = 0;
    virtual base::Elements most() const = 0;
    // All has been filled.
    virtual void end() {}
};

// Memory that the host can write: elements are put where they shall lie.
class InPlace final : public Destination {
public:
    explicit InPlace(const base::Slab& part) : part_(part) {}
    base::Elements size() const override { return part_.n; }
    base::DType type() const override { return part_.type; }
    base::Slab next(base::Elements n) override { return part_.part((at_ += n) - n, n); }
    base::Elements most() const override { return part_.n; }

private:
    base::Slab part_;
    base::Elements at_ = 0;
};

// Memory of a device that the host cannot write: one of two staging buffers is filled while the
// copy out of the other is on its way.
class Upload final : public Destination {
public:
    // Two buffers of staging_bytes each, at least one element.
    Upload(device::Device& device, base::Bytes staging_bytes);
    ~Upload() override; // waits for the copies
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    // What follows goes there, once what came before has ended.
    void begin(const base::Slab& part);
    // Blocks until all copies are done. Throws what a copy has thrown.
    void sync() { stream_->sync(); }

    base::Elements size() const override { return part_.n; }
    base::DType type() const override { return part_.type; }
    base::Slab next(base::Elements n) override;
    base::Elements most() const override;
    void end() override { send(); }

private:
    struct Staging {
        device::HostBuffer<std::byte> memory;
        std::unique_ptr<device::Event> sent;
    };
    void send();

    device::Device& device_;
    std::array<Staging, 2> staging_;
    std::unique_ptr<device::Stream> stream_;
    base::Slab part_;
    std::size_t turn_ = 0;      // the buffer that is being filled
    base::Elements filled_ = 0; // of it
    base::Elements sent_ = 0;   // of the part
};

// Fills `destination` [layout.per_rank()] of fp32 or bf16 with a rank's part, from its first
// element to its last: `fill` gives the elements of a slice, asking next() for all of them; padding
// becomes zero. Throws Error(failed) for a destination of another size or type.
void fill_part(const UnitSpec& unit, const ShardLayout& layout, int rank, Destination& destination,
               const std::function<void(const Slice&)>& fill);

class Loader {
public:
    // staging_bytes: beside the destination's, the only memory a load needs; at least one row of
    // any tensor is held.
    Loader(io::WeightsFile& file, base::Bytes staging_bytes);

    // Fills `destination` [layout.per_rank()] of fp32 or bf16 with this rank's part; padding
    // becomes zero. What is stored as another type is converted, to bf16 by rounding to nearest
    // even; what is stored as this one is read straight into the destination's memory. Blocks.
    // Throws Error(failed) with file, dataset and rows.
    void load(const UnitSpec& unit, const ShardLayout& layout, int rank, Destination& destination);

    // What of all that was loaded is infinite or not a number, as it is held now.
    struct Faults {
        base::Elements count = 0;
        std::string first; // "lm_head.weight[3, 5] is nan"
    };
    const Faults& not_finite() const { return faults_; }

private:
    void load_slice(const Slice& slice, Destination& destination);
    // Looks at elements of the tensor from `first` on, as they are held.
    void inspect(const io::StoredTensor& stored, base::Elements first, const base::Slab& held);
    void convert(const io::StoredTensor& stored, base::Elements skip, const base::Slab& to);

    io::WeightsFile& file_;
    base::Bytes staging_bytes_;
    std::vector<std::byte> staging_;
    std::vector<float> widened_; // between two 16-bit types
    Faults faults_;
};

} // namespace foregather::shard
