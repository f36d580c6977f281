// SPDX-License-Identifier: Apache-2.0
// Where parts lie: a rank's own one after another; or, in a window, those of the ranks that share
// it side by side, unit by unit.
#include "weights_home.hpp"

#include <cstdio>

#include <optional>

#include <foregather/comm/host_memory.hpp>

#include "limits.hpp"

namespace foregather::job {

void tell_not_finite(const shard::Loader& loader, const std::string& path, int rank) {
    const shard::Loader::Faults& found = loader.not_finite();
    if (found.count > 0) {
        std::fprintf(stderr,
                     "foregather: warning: rank %d: %s: %s; of what this rank has read, %lld "
                     "elements are not finite: nor will be what they touch\n",
                     rank, path.c_str(), found.first.c_str(), static_cast<long long>(found.count));
    }
}

WeightsHome::WeightsHome(const model::Chain& chain, const Transport& transport,
                         const mesh::Topology& topology, backend::Backend& backend,
                         const deck::CommSection& comm, Layout layout)
    : chain_(chain), plan_(std::move(layout.plan)), type_(layout.type), offload_(layout.offload),
      first_replica_(topology.replica() == 0), rank_(topology.shard_rank()), together_(1),
      first_together_(rank_), backend_(backend), epochs_(chain.units.size(), 1) {
    if (transport.name == "shared") {
        open_shared(topology, comm.timeout_s);
        return;
    }
    if (moves(transport)) {
        communicator_ = transport.name == host_memory_transport
                            ? comm::make_host_memory_copies(backend.device())
                            : backend.gather_communicator(topology, comm);
        gather_ = backend.device().stream("gather", device::Priority::high);
        open_gathers(topology, layout.slots);
        if (offload_ && transport.name != host_memory_transport) {
            copy_ = backend.device().stream("copy", device::Priority::high);
            stages_memory_ = allocate(2 * plan_.largest_part, "parts on their way to gathers");
        }
    }
    if (!window_) {
        const std::string purpose = "this rank's weights";
        arena_ = offload_ ? backend.device().allocate_host(bytes(plan_.shard_elements), purpose)
                          : allocate(plan_.shard_elements, purpose);
    }
}

WeightsHome::~WeightsHome() {
    if (communicator_ && std::uncaught_exceptions() > exceptions_at_start_) {
        communicator_->abort();
    }
    for (device::Stream* stream : {gather_.get(), copy_.get()}) {
        try {
            if (stream != nullptr) {
                stream->sync();
            }
        } catch (const std::exception& error) {
            if (std::uncaught_exceptions() == exceptions_at_start_) { // else it is told by now
                std::fprintf(stderr, "foregather: at the end of the run: %s\n", error.what());
            }
        }
    }
    gather_.reset(); // the last copies wait for gathers: after these
    copy_.reset();
}

void WeightsHome::open_shared(const mesh::Topology& topology, double timeout_s) {
    together_ = topology.shard_size();
    first_together_ = 0;
    window_ = std::make_unique<mesh::SharedWindow>(topology.shard(), bytes(plan_.whole_elements));
    board_ = std::make_unique<comm::SharedBoard>(topology.shard(),
                                                 static_cast<int>(chain_.units.size()), timeout_s);
}

void WeightsHome::open_gathers(const mesh::Topology& topology, int slots) {
    if (communicator_->shares_node()) {
        const mesh::Control node(topology.shard_node());
        together_ = node.size();
        first_together_ = rank_ - node.rank();
        window_ = std::make_unique<mesh::SharedWindow>(topology.shard_node(),
                                                       bytes(together_ * plan_.shard_elements));
    }
    open_slots(topology, slots);
}

void WeightsHome::open_slots(const mesh::Topology& topology, int slots) {
    const base::Elements n = slots * plan_.largest_unit;
    if (communicator_->shares_node()) {
        slots_window_ = std::make_unique<mesh::SharedWindow>(topology.shard_node(), bytes(n));
        slots_ = {slots_window_->data(), n, type_};
        return;
    }
    slots_memory_ = allocate(n, "gathered units");
    slots_ = {slots_memory_->data(), n, type_};
}

void WeightsHome::resize_slots(const mesh::Topology& topology, int slots) {
    sources_.clear();
    if (communicator_) {
        slots_memory_.reset();
        slots_window_.reset();
        open_slots(topology, slots);
    }
}

std::unique_ptr<device::Memory> WeightsHome::allocate(base::Elements n,
                                                      const std::string& purpose) {
    device::Device& device = backend_.device();
    return communicator_ ? communicator_->allocate(device, bytes(n), purpose)
                         : device.allocate(bytes(n), purpose);
}

base::Slab WeightsHome::part_of(base::UnitId unit) const {
    const auto& place = plan_.units[static_cast<std::size_t>(unit)];
    const base::Elements n = place.layout.per_rank();
    if (window_) {
        const base::Slab window{window_->data(), together_ * plan_.shard_elements, type_};
        return window.part(together_ * place.in_shard_arena + (rank_ - first_together_) * n, n);
    }
    return base::Slab{arena_->data(), plan_.shard_elements, type_}.part(place.in_shard_arena, n);
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
    std::optional<shard::Upload> upload; // to memory that the host cannot write
    if (!window_ && !offload_ && !backend_.device().host_memory()) {
        upload.emplace(backend_.device(), base::Bytes{staging_bytes});
    }
    for (std::size_t u = 0; u < chain_.units.size(); ++u) {
        const auto unit = static_cast<base::UnitId>(u);
        shard::InPlace in_place(part_of(unit));
        if (upload) {
            upload->begin(part_of(unit));
        }
        loader.load(chain_.units[u], plan_.units[u].layout, rank_,
                    upload ? static_cast<shard::Destination&>(*upload) : in_place);
        if (board_) {
            board_->post(unit, 1);
        }
    }
    if (upload) {
        upload->sync();
    }
    if (first_replica_) {
        tell_not_finite(loader, file.path(), rank_);
    }
}

void WeightsHome::publish() {
    for (std::size_t u = 0; board_ && u < epochs_.size(); ++u) {
        board_->post(static_cast<base::UnitId>(u), epochs_[u]);
    }
}

schedule::TimedSource& WeightsHome::open_source(const schedule::SourceOptions& options) {
    if (communicator_) {
        schedule::StagedParts::Stages stages;
        if (copy_) {
            stages = {{stages_memory_->data(), 2 * plan_.largest_part, type_}, copy_.get()};
        }
        sources_.push_back(std::make_unique<schedule::Prefetcher>(
            options, chain_.units, plan_,
            schedule::Prefetcher::GatherMemory{
                [this](base::UnitId unit) { return base::ConstSlab(part_of(unit)); }, slots_,
                stages},
            *communicator_, backend_.device(), *gather_));
        return *sources_.back();
    }
    schedule::InPlaceSource::Ready ready;
    schedule::InPlaceSource::Updated updated;
    if (board_) {
        ready = [this](base::UnitId unit, device::Stream& compute) {
            const auto u = static_cast<std::size_t>(unit);
            board_->wait(unit, epochs_[u], chain_.units[u].name, compute);
        };
        updated = [this](base::UnitId unit, device::Stream& compute) {
            board_->post(unit, ++epochs_[static_cast<std::size_t>(unit)], compute);
        };
    }
    std::byte* whole = window_ ? window_->data() : arena_->data();
    sources_.push_back(std::make_unique<schedule::InPlaceSource>(
        options, plan_, base::ConstSlab(whole, plan_.whole_elements, type_), backend_.device(),
        std::move(ready), std::move(updated),
        schedule::RangeNames(backend_.device(), schedule::SpanKind::compute, chain_.units)));
    return *sources_.back();
}

} // namespace foregather::job
