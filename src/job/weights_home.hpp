// SPDX-License-Identifier: Apache-2.0
// Where the weights live on this rank, how they get there, and the source that the model reads.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include <foregather/backend/backend.hpp>
#include <foregather/comm/shared_board.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/mesh/window.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/schedule/source.hpp>
#include <foregather/shard/load.hpp>

#include "memory_plan.hpp"

namespace foregather::job {

// One line on stderr, by the rank that has read it, where what was loaded of a file is infinite or
// not a number. No error: what never meets it is right.
void tell_not_finite(const shard::Loader& loader, const std::string& path, int rank);

class WeightsHome {
public:
    struct Layout {
        shard::ArenaPlan plan;
        base::DType type; // of all of it
        int slots;        // if the transport moves weights
        bool offload;     // the arena lies in host memory
    };
    // Collective over the shard group; blocks. Allocates the arena, slots and stages; opens the
    // communicator or the shared window that the transport needs.
    WeightsHome(const model::Chain& chain, const Transport& transport,
                const mesh::Topology& topology, backend::Backend& backend,
                const deck::CommSection& comm, Layout layout);
    // Drains the gather and the copy stream before what it uses goes.
    ~WeightsHome();
    WeightsHome(const WeightsHome&) = delete;
    WeightsHome& operator=(const WeightsHome&) = delete;

    // Reads this rank's parts, in the order of first use; what is not finite in them is told by the
    // ranks of the first replica. Blocks.
    void load(io::WeightsFile& file);

    // A source of uses of the chain's units. Several share slots, stream and communicator: while
    // one is in use, all passes of the others must be collected and nothing of theirs gathered
    // ahead.
    schedule::TimedSource& open_source(const schedule::SourceOptions& options);

    // Another number of slots in place of those there are, which go first: all sources are gone.
    // Nothing may be in flight. Collective over the ranks of the shard group on a node; blocks.
    void resize_slots(const mesh::Topology& topology, int slots);

    // This rank's part of a unit, as it is gathered or read in place.
    base::Slab part_of(base::UnitId unit) const;
    // Parts that were not filled by load() are there: lets other ranks read them in place.
    void publish();

    // What weights come by, as it names itself: the communicator, or the window with its size.
    std::string transport() const;
    const comm::Communicator* communicator() const { return communicator_.get(); }
    // Of a unit's part, as it is gathered or read.
    base::DType weights_type() const { return part_of(0).type; }

private:
    void open_shared(const mesh::Topology& topology, double timeout_s);
    void open_gathers(const mesh::Topology& topology, int slots);
    void open_slots(const mesh::Topology& topology, int slots);
    std::unique_ptr<device::Memory> allocate(base::Elements n, const std::string& purpose);
    base::Bytes bytes(base::Elements n) const { return base::bytes_of(n, type_); }

    int exceptions_at_start_ = std::uncaught_exceptions();
    const model::Chain& chain_;
    shard::ArenaPlan plan_;
    base::DType type_;
    bool offload_;
    bool first_replica_;
    int rank_;     // of the shard group, whose parts are loaded
    int together_; // ranks whose parts of a unit lie side by side in one window, from
                   // first_together_
    int first_together_;
    backend::Backend& backend_;
    std::unique_ptr<comm::Communicator> communicator_;
    std::unique_ptr<mesh::SharedWindow> window_;
    std::unique_ptr<comm::SharedBoard> board_;
    std::unique_ptr<device::Memory> arena_; // unless it is in the window
    std::unique_ptr<mesh::SharedWindow> slots_window_;
    std::unique_ptr<device::Memory> slots_memory_; // unless they are in the window
    base::Slab slots_;
    std::unique_ptr<device::Memory> stages_memory_; // of parts that come from host memory
    std::unique_ptr<device::Stream> copy_;
    std::unique_ptr<device::Stream> gather_;
    std::vector<std::uint64_t> epochs_; // of each unit: how often its parts have changed
    std::vector<std::unique_ptr<schedule::TimedSource>> sources_;
};

} // namespace foregather::job
