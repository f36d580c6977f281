// SPDX-License-Identifier: Apache-2.0
// Forward passes as job score makes them, whose results are dropped.
#pragma once

#include <array>

#include <foregather/backend/backend.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/transformer.hpp>

#include "pack_buffers.hpp"
#include "rehearsal.hpp"
#include "row_results.hpp"

namespace foregather::job {

class ScoreRehearsal final : public Rehearsal {
public:
    struct Parts { // all must outlive the rehearsal
        backend::Backend& backend;
        model::Transformer& transformer;
        const model::ModelConfig& config;
        const model::Chain& chain;
        device::Stream& compute;
    };
    // Allocates inputs and results of packs of up to so many tokens and windows; `wants` is what
    // the transformer's head was made for.
    ScoreRehearsal(const Parts& parts, const model::HeadWants& wants, base::Elements tokens,
                   std::int64_t windows);

    void take(const PackInputs& inputs) override;
    std::vector<StepSeconds> play(const Ends& ends, std::int64_t steps,
                                  const Collected& collected) override;

private:
    struct Flight { // one pass in flight
        std::unique_ptr<device::Event> begun, computed, done;
    };
    void enqueue(Flight& flight, schedule::TimedSource& source);

    Parts p_;
    PackBuffers upload_;
    PackBuffers::Views views_;
    RowsOnDevice rows_;
    RowsOnHost rows_on_host_;
    std::array<Flight, 2> flights_;
    Drain drain_{compute()};
};

} // namespace foregather::job
