// SPDX-License-Identifier: Apache-2.0
// A rank's part of a unit as read from a real weights file: the right elements, converted, padding
// zero, no rows but its own, in pieces of any size.
#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/shard/load.hpp>

#include "../../support/apart_device.hpp"
#include "../../support/mpi_test.hpp"
#include "../../unit/io/h5_fixture.hpp"

using namespace foregather;
namespace h5 = foregather::io::testing;

namespace {

constexpr base::Elements rows = 61;
constexpr base::Elements columns = 51;

// Small whole numbers: exact in every element type.
float stored(int tensor, base::Elements element) {
    return static_cast<float>((tensor * 37 + element * 11) % 251 - 125);
}

std::vector<float> values_of(int tensor, base::Elements n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (base::Elements e = 0; e < n; ++e) {
        values[static_cast<std::size_t>(e)] = stored(tensor, e);
    }
    return values;
}

void write_weights(const std::string& path) {
    h5::Writer writer(path);
    writer.attribute("format", std::string("foregather.weights"));
    writer.attribute("format_version", std::int64_t{1});
    writer.text("config", "{}");
    const auto bf16 = h5::bfloat16();
    const auto f16 = h5::float16();
    writer.put("weights/a/weight", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {rows, columns},
               values_of(0, rows * columns));
    writer.put("weights/b/weight", bf16.handle(), H5T_NATIVE_FLOAT, {rows, columns},
               values_of(1, rows * columns));
    writer.put("weights/c/bias", f16.handle(), H5T_NATIVE_FLOAT, {rows}, values_of(2, rows));
}

// The unit: all of a, rows 10 .. 50 of b, all of c.
shard::UnitSpec unit_spec() {
    shard::UnitSpec unit;
    unit.name = "layer.0";
    unit.append("a.weight", {rows, columns}, 0, rows);
    unit.append("b.weight", {rows, columns}, 10, 40);
    unit.append("c.bias", {rows}, 0, rows);
    return unit;
}

class LoaderTest : public testing::Test {
protected:
    LoaderTest() {
        const mesh::Control control(MPI_COMM_WORLD);
        if (tests::rank() == 0) {
            directory_ = std::make_unique<h5::Directory>();
            write_weights(*directory_ / "weights.h5");
        }
        path_ = control.broadcast(tests::rank() == 0 ? *directory_ / "weights.h5" : "");
    }
    ~LoaderTest() override { tests::agree(true); } // rank 0 removes it when all have read

    // The whole unit as it must be, with gaps and padding.
    static std::vector<float> whole_unit(const shard::UnitSpec& unit, base::Elements padded) {
        std::vector<float> whole(static_cast<std::size_t>(padded));
        for (std::size_t p = 0; p < unit.parts.size(); ++p) {
            const auto& part = unit.parts[p];
            for (base::Elements e = 0; e < part.elements(); ++e) {
                whole[static_cast<std::size_t>(part.offset + e)] =
                    stored(static_cast<int>(p), part.first_row * part.row_elements() + e);
            }
        }
        return whole;
    }

    std::unique_ptr<h5::Directory> directory_;
    std::string path_;
};

base::Slab slab(std::vector<float>& part) { return base::View<float>(part); }

void load(shard::Loader& loader, const shard::UnitSpec& unit, const shard::ShardLayout& layout,
          int rank, const base::Slab& part) {
    shard::InPlace destination(part);
    loader.load(unit, layout, rank, destination);
}

} // namespace

TEST_F(LoaderTest, each_rank_holds_its_part_whatever_the_staging) {
    const shard::UnitSpec unit = unit_spec();
    const shard::ShardLayout layout(unit.elements, tests::ranks());
    const auto whole = whole_unit(unit, layout.padded());
    const auto first = whole.begin() + tests::rank() * layout.per_rank();
    const std::vector<float> expected(first, first + layout.per_rank());
    for (const std::int64_t staging :
         {1, 500, 10'000, 1'000'000}) { // less than a row, two rows, ..., all
        io::WeightsFile file(path_);
        shard::Loader loader(file, {staging});
        std::vector<float> part(expected.size(), -1.0F);
        load(loader, unit, layout, tests::rank(), slab(part));
        EXPECT_EQ(part, expected) << "staging of " << staging << " bytes";
    }
}

TEST_F(LoaderTest, holds_what_it_read_as_bf16) {
    const shard::UnitSpec unit = unit_spec();
    const shard::ShardLayout layout(unit.elements, tests::ranks());
    const auto whole = whole_unit(unit, layout.padded());
    for (const std::int64_t staging : {1, 500, 1'000'000}) {
        io::WeightsFile file(path_);
        shard::Loader loader(file, {staging});
        std::vector<std::uint16_t> part(static_cast<std::size_t>(layout.per_rank()), 0xFFFF);
        load(loader, unit, layout, tests::rank(),
             {reinterpret_cast<std::byte*>(part.data()), std::ssize(part), base::DType::bf16});
        const auto first = static_cast<std::size_t>(tests::rank() * layout.per_rank());
        for (std::size_t i = 0; i < part.size(); ++i) { // whole numbers below 256: exact in bf16
            const float value = whole[first + i];
            ASSERT_EQ(part[i], std::bit_cast<std::uint32_t>(value) >> 16) << i;
        }
    }
}

TEST_F(LoaderTest, a_type_that_weights_are_never_held_as_is_refused) {
    const shard::UnitSpec unit = unit_spec();
    const shard::ShardLayout layout(unit.elements, tests::ranks());
    io::WeightsFile file(path_);
    shard::Loader loader(file, {1000});
    std::vector<std::uint16_t> part(static_cast<std::size_t>(layout.per_rank()));
    EXPECT_THROW(
        load(loader, unit, layout, tests::rank(),
             {reinterpret_cast<std::byte*>(part.data()), std::ssize(part), base::DType::f16}),
        base::Error);
}

TEST_F(LoaderTest, reads_no_rows_but_those_that_touch_its_part) {
    const shard::UnitSpec unit = unit_spec();
    const shard::ShardLayout layout(unit.elements, 40); // as one of 40 ranks, each in turn
    io::WeightsFile file(path_);
    shard::Loader loader(file, {100'000});
    std::vector<float> part(static_cast<std::size_t>(layout.per_rank()));
    for (int r = tests::rank(); r < 40; r += tests::ranks()) {
        const std::int64_t before = file.bytes_read();
        load(loader, unit, layout, r, slab(part));
        // A part touches at most two rows more than it has elements for, of at most 4 bytes an
        // element.
        EXPECT_LE(file.bytes_read() - before, 4 * (layout.per_rank() + 2 * 2 * columns));
    }
}

TEST_F(LoaderTest, every_rank_of_many_puts_the_unit_together) {
    const shard::UnitSpec unit = unit_spec();
    for (const int ranks : {1, 2, 3, 5, 7, 40, 61}) {
        const shard::ShardLayout layout(unit.elements, ranks);
        io::WeightsFile file(path_);
        shard::Loader loader(file, {1000});
        std::vector<float> gathered;
        std::vector<float> part(static_cast<std::size_t>(layout.per_rank()), -1.0F);
        for (int r = 0; r < ranks; ++r) {
            load(loader, unit, layout, r, slab(part));
            gathered.insert(gathered.end(), part.begin(), part.end());
        }
        EXPECT_EQ(gathered, whole_unit(unit, layout.padded())) << "of " << ranks << " ranks";
    }
}

// Byte for byte what the host holds, although a copy may still read a buffer when the next piece is
// read from the file.
TEST_F(LoaderTest, fills_memory_that_the_host_cannot_write_through_two_buffers) {
    const shard::UnitSpec unit = unit_spec();
    std::uint64_t seed = 0;
    for (const int ranks : {1, 2, 3, 4}) {
        const shard::ShardLayout layout(unit.elements, ranks);
        for (const base::DType type : {base::DType::f32, base::DType::bf16}) {
            for (const std::int64_t staging : {30, 500, 1'000'000}) {
                const int rank = static_cast<int>(seed) % ranks;
                const auto n = base::bytes_of(layout.per_rank(), type);
                tests::ApartDevice device(++seed,
                                          std::chrono::microseconds(staging < 500 ? 0 : 300));
                io::WeightsFile file(path_);
                shard::Loader loader(file, {staging});
                std::vector<std::byte> expected(static_cast<std::size_t>(n.count));
                load(loader, unit, layout, rank, {expected.data(), layout.per_rank(), type});
                const std::int64_t read = file.bytes_read();
                const device::Buffer<std::byte> part(device, n.count, "a part");
                std::fill(part.view().begin(), part.view().end(), std::byte{0xA5});
                shard::Upload upload(device, {staging});
                const int buffers = device.allocations();
                for (const int time : {1, 2}) { // the buffers are used again
                    upload.begin({part.view().data(), layout.per_rank(), type});
                    loader.load(unit, layout, rank, upload);
                    EXPECT_GE(file.bytes_read(), (1 + time) * read);
                }
                upload.sync();
                EXPECT_TRUE(std::equal(expected.begin(), expected.end(), part.view().begin()))
                    << ranks << " ranks, " << base::name_of(type) << ", staging of " << staging;
                EXPECT_EQ(device.allocations(), buffers);
                for (std::size_t c = 1; c < device.copies().size(); ++c) {
                    EXPECT_NE(device.copies()[c].from, device.copies()[c - 1].from) << "in turns";
                }
                std::int64_t copied = 0;
                for (const auto& copy : device.copies()) {
                    copied += copy.bytes;
                    EXPECT_LE(copy.bytes, std::max<std::int64_t>(staging, 4));
                }
                EXPECT_EQ(copied, 2 * n.count) << "all of it by copies";
            }
        }
    }
}

TEST_F(LoaderTest, a_destination_of_another_size_is_refused) {
    const shard::UnitSpec unit = unit_spec();
    const shard::ShardLayout layout(unit.elements, tests::ranks());
    io::WeightsFile file(path_);
    shard::Loader loader(file, {1000});
    std::vector<float> part(static_cast<std::size_t>(layout.per_rank()) + 1);
    EXPECT_THROW(load(loader, unit, layout, tests::rank(), slab(part)), base::Error);
}

TEST_F(LoaderTest, a_tensor_that_is_not_in_the_file_is_named) {
    shard::UnitSpec unit;
    unit.append("model.norm.weight", {8}, 0, 8);
    const shard::ShardLayout layout(unit.elements, 1);
    io::WeightsFile file(path_);
    shard::Loader loader(file, {1000});
    std::vector<float> part(static_cast<std::size_t>(layout.per_rank()));
    h5::expect_error(base::Status::failed, {"model.norm.weight", path_},
                     [&] { load(loader, unit, layout, 0, slab(part)); });
}
