// SPDX-License-Identifier: Apache-2.0
// One arena per rank, or one window per group.
#include "weights_home.hpp"

#include <foregather/shard/load.hpp>

#include "limits.hpp"

namespace foregather::job {

WeightsHome::WeightsHome(const model::Chain& chain, const Transport& transport,
                         const mesh::Topology& topology, backend::Backend& backend,
                         const deck::CommSection& comm)
    : chain_(chain), plan_(chain.units, topology.shard_size()), rank_(topology.shard_rank()),
      backend_(backend) {
    if (transport.name == "shared") {
        window_ = std::make_unique<mesh::SharedWindow>(
            topology.shard(), base::bytes_of(plan_.whole_elements, base::DType::f32));
        board_ = std::make_unique<comm::SharedBoard>(
            topology.shard(), static_cast<int>(chain.units.size()), comm.timeout_s);
        return;
    }
    arena_ = device::Buffer<float>(backend.device(), plan_.shard_elements, "this rank's weights");
    if (transport.name != "none") {
        communicator_ = backend.gather_communicator(topology.shard(), comm);
        gather_ = backend.device().stream("gather", device::Priority::high);
    }
}

WeightsHome::~WeightsHome() { gather_.reset(); }

base::View<float> WeightsHome::part_of(base::UnitId unit) const {
    const auto& place = plan_.units[static_cast<std::size_t>(unit)];
    const base::Elements n = place.layout.per_rank();
    if (window_) {
        float* whole = reinterpret_cast<float*>(window_->data());
        return {whole + place.in_whole_arena + rank_ * n, static_cast<std::size_t>(n)};
    }
    return arena_.view().subspan(static_cast<std::size_t>(place.in_shard_arena),
                                 static_cast<std::size_t>(n));
}

void WeightsHome::load(io::WeightsFile& file) {
    shard::Loader loader(file, {staging_bytes});
    for (std::size_t u = 0; u < chain_.units.size(); ++u) {
        const auto unit = static_cast<base::UnitId>(u);
        loader.load(chain_.units[u], plan_.units[u].layout, rank_, part_of(unit));
        if (board_) {
            board_->post(unit, 1);
        }
    }
}

schedule::TimedSource& WeightsHome::open_source(const schedule::SourceOptions& options) {
    if (communicator_) {
        source_ = std::make_unique<schedule::Prefetcher>(options, chain_.units, plan_,
                                                         base::slab(base::View<const float>(arena_.view())),
                                                         *communicator_, backend_.device(), *gather_);
        return *source_;
    }
    schedule::InPlaceSource::Ready ready;
    if (board_) {
        ready = [this](base::UnitId unit, device::Stream& compute) {
            board_->wait(unit, 1, chain_.units[static_cast<std::size_t>(unit)].name, compute);
        };
    }
    const auto* whole = window_ ? window_->data() : base::slab(arena_.view()).data;
    source_ = std::make_unique<schedule::InPlaceSource>(
        options, plan_, base::ConstSlab{whole, plan_.whole_elements, base::DType::f32},
        backend_.device(), std::move(ready));
    return *source_;
}

} // namespace foregather::job
