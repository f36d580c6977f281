// SPDX-License-Identifier: Apache-2.0
// Exchanges on the thread of a host stream.
#include "reductions.hpp"

#include <foregather/device/host_stream.hpp>

namespace foregather::comm {

MpiReductions::MpiReductions(MPI_Comm group, const MpiOptions& options)
    : exchange_(group, std::vector<int>(static_cast<std::size_t>(mesh::size_of(group)), 1),
                options),
      bytes_per_second_(options.bytes_per_second) {}

void MpiReductions::do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                                      device::Stream& stream) {
    device::host_stream(stream).enqueue([this, full, shard, what = std::move(what)] {
        const auto begin = Clock::now();
        exchange_.reduce_scatter(full, shard, what, begin);
        end(full.bytes() - shard.bytes(), begin);
    });
}

void MpiReductions::do_all_reduce(base::Slab slab, std::string what, device::Stream& stream) {
    device::host_stream(stream).enqueue([this, slab, what = std::move(what)] {
        const auto begin = Clock::now();
        end(exchange_.all_reduce(slab, what, begin), begin);
    });
}

void MpiReductions::end(base::Bytes received, Clock::time_point begin) {
    pace(received, bytes_per_second_, begin);
    count_gather(received, std::chrono::duration<double>(Clock::now() - begin).count());
}

} // namespace foregather::comm
