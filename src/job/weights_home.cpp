// SPDX-License-Identifier: Apache-2.0
// Where parts lie: a rank's own one after another; or, in a window, those of the ranks that share
// it side by side, unit by unit.
#include "weights_home.hpp"

#include <foregather/shard/load.hpp>

#include "limits.hpp"

namespace foregather::job {
WeightsHome::WeightsHome(const model::Chain& chain, const Transport& transport,
                         const mesh::Topology& topology, backend::Backend& backend,
                         const deck::CommSection& comm, int slots, base::DType type)
    : chain_(chain), type_(type), plan_(chain.units, topology.shard_size()),
      rank_(topology.shard_rank()), together_(1), first_together_(rank_), backend_(backend) {
    if (transport.name == "shared") {
        open_shared(topology, comm.timeout_s);
        return;
    }
    if (moves(transport)) {
        communicator_ = backend.gather_communicator(topology, comm);
        gather_ = backend.device().stream("gather", device::Priority::high);
        open_gathers(topology, slots);
    }
    if (!window_) {
        arena_ = device::Buffer<std::byte>(backend.device(), bytes(plan_.shard_elements).count,
                                           "this rank's weights");
    }
}

WeightsHome::~WeightsHome() { gather_.reset(); }

void WeightsHome::open_shared(const mesh::Topology& topology, double timeout_s) {
    together_ = topology.shard_size();
    first_together_ = 0;
    window_ = std::make_unique<mesh::SharedWindow>(topology.shard(), bytes(plan_.whole_elements));
    board_ = std::make_unique<comm::SharedBoard>(topology.shard(),
                                                 static_cast<int>(chain_.units.size()), timeout_s);
}

void WeightsHome::open_gathers(const mesh::Topology& topology, int slots) {
    const base::Elements n = slots * plan_.largest_unit;
    if (!communicator_->shares_node()) {
        slots_buffer_ =
            device::Buffer<std::byte>(backend_.device(), bytes(n).count, "gathered units");
        slots_ = {slots_buffer_.view().data(), n, type_};
        return;
    }
    const mesh::Control node(topology.shard_node());
    together_ = node.size();
    first_together_ = rank_ - node.rank();
    window_ = std::make_unique<mesh::SharedWindow>(topology.shard_node(),
                                                   bytes(together_ * plan_.shard_elements));
    slots_window_ = std::make_unique<mesh::SharedWindow>(topology.shard_node(), bytes(n));
    slots_ = {slots_window_->data(), n, type_};
}

base::Slab WeightsHome::part_of(base::UnitId unit) const {
    const auto& place = plan_.units[static_cast<std::size_t>(unit)];
    const base::Elements n = place.layout.per_rank();
    if (window_) {
        const base::Slab window{window_->data(), together_ * plan_.shard_elements, type_};
        return window.part(together_ * place.in_shard_arena + (rank_ - first_together_) * n, n);
    }
    return base::Slab{arena_.view().data(), plan_.shard_elements, type_}.part(place.in_shard_arena,
                                                                              n);
}

std::string WeightsHome::transport() const {
    if (communicator_) {
        return communicator_->name();
    }
    return window_ ? "shared: a window of " + std::to_string(window_->size().count) + " bytes"
                   : "none";
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
        source_ = std::make_unique<schedule::Prefetcher>(
            options, chain_.units, plan_,
            schedule::Prefetcher::GatherMemory{
                [this](base::UnitId unit) { return base::ConstSlab(part_of(unit)); }, slots_},
            *communicator_, backend_.device(), *gather_);
        return *source_;
    }
    schedule::InPlaceSource::Ready ready;
    if (board_) {
        ready = [this](base::UnitId unit, device::Stream& compute) {
            board_->wait(unit, 1, chain_.units[static_cast<std::size_t>(unit)].name, compute);
        };
    }
    std::byte* whole = window_ ? window_->data() : arena_.view().data();
    source_ = std::make_unique<schedule::InPlaceSource>(
        options, plan_, base::ConstSlab(whole, plan_.whole_elements, type_), backend_.device(),
        std::move(ready));
    return *source_;
}

} // namespace foregather::job
