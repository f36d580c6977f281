// SPDX-License-Identifier: Apache-2.0
// Ranks of one node lay what is to be reduced in a shared window: nothing is sent, who has arrived
// and who has read is posted on a board. Everything else is exchanged as by "mpi".
#include <algorithm>
#include <memory>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/comm/shared_board.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/window.hpp>

#include "reductions.hpp"
#include "sum.hpp"

namespace foregather::comm {
namespace {

constexpr std::int64_t page = 4096;
constexpr base::Elements block = 16 * 1024; // elements that are summed at once: they stay in cache

// What the board's two entries tell of a rank: its `full` is there; it has read all others'.
constexpr int arrived = 0;
constexpr int has_read = 1;

// One rank's memory in a window of all ranks', each of `size` bytes.
class Region final : public device::Memory {
public:
    Region(std::byte* data, base::Bytes size) : data_(data), size_(size) {}
    std::byte* data() const override { return data_; }
    base::Bytes size() const override { return size_; }

private:
    std::byte* data_;
    base::Bytes size_;
};

class SharedCommunicator final : public MpiReductions {
public:
    SharedCommunicator(MPI_Comm group, const MpiOptions& options)
        : MpiReductions(group, options), group_(mesh::duplicate(group, "shared gradients")),
          board_(group, 2, options.timeout_s, "did not arrive"), sum_(block) {}

    int rank() const override { return exchange().rank(); }
    int size() const override { return exchange().size(); }
    std::string name() const override { return "shared"; }

    std::unique_ptr<device::Memory> allocate(device::Device& device, base::Bytes bytes,
                                             const std::string& purpose) override {
        const auto shared = [this](base::Bytes n) {
            const base::Bytes stride{(n.count + page - 1) / page * page};
            windows_.push_back(
                {std::make_unique<mesh::SharedWindow>(group_.handle(), size() * stride), stride});
            return std::make_unique<Region>(windows_.back().of(rank()), n);
        };
        return device.allocate_by(shared, bytes, purpose);
    }

private:
    struct Window {
        std::unique_ptr<mesh::SharedWindow> memory;
        base::Bytes stride;

        std::byte* of(int rank) const { return memory->data() + rank * stride.count; }
    };

    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        device::host_stream(stream).enqueue([this, shard, full, what = std::move(what)] {
            const auto begin = Clock::now();
            exchange().run(shard.data, shard.bytes(), full.data, what, begin);
            end(brings(shard, full), begin);
        });
    }

    void do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                           device::Stream& stream) override {
        const std::vector<base::ConstSlab> parts = parts_of(full, shard.n, what);
        device::HostStream& host = device::host_stream(stream);
        const std::uint64_t turn = ++turns_;
        host.enqueue([this, turn] {
            begin_ = Clock::now();
            board_.post(arrived, turn);
        });
        board_.wait(arrived, turn, what, stream);
        host.enqueue([this, turn, parts, shard] {
            add(parts, shard);
            board_.post(has_read, turn);
        });
        board_.wait(has_read, turn, what, stream);
        host.enqueue([this, full, shard] { end(full.bytes() - shard.bytes(), begin_); });
    }

    // This rank's part of each rank's `full`.
    std::vector<base::ConstSlab> parts_of(base::ConstSlab full, base::Elements n,
                                          const std::string& what) const {
        const auto holds = [&](const Window& window) {
            const std::byte* own = window.of(rank());
            return full.data >= own && full.data + full.bytes().count <= own + window.stride.count;
        };
        const auto window = std::find_if(windows_.begin(), windows_.end(), holds);
        if (window == windows_.end()) {
            base::fail(what + ": what is reduced does not lie in memory that the ranks share");
        }
        std::vector<base::ConstSlab> parts;
        for (int r = 0; r < size(); ++r) {
            const std::byte* theirs = window->of(r) + (full.data - window->of(rank()));
            parts.push_back(base::ConstSlab(theirs, full.n, full.type).part(rank() * n, n));
        }
        return parts;
    }

    void add(const std::vector<base::ConstSlab>& parts, base::Slab shard) {
        for (base::Elements first = 0; first < shard.n; first += block) {
            const base::Elements n = std::min(block, shard.n - first);
            sum_.clear();
            for (const base::ConstSlab& part : parts) {
                sum_.add(part.part(first, n));
            }
            sum_.store(shard.part(first, n));
        }
    }

    mesh::Comm group_;
    std::vector<Window> windows_;
    SharedBoard board_;
    Sum sum_;                 // of the stream's thread
    Clock::time_point begin_; // of the stream's thread
    std::uint64_t turns_ = 0; // reduce-scatters enqueued
};

} // namespace

std::unique_ptr<Communicator> make_shared_communicator(MPI_Comm group, const MpiOptions& options) {
    return std::make_unique<SharedCommunicator>(group, options);
}

} // namespace foregather::comm
