// SPDX-License-Identifier: Apache-2.0
// Kernels with events around each call: times, operations and bytes by family. It computes nothing
// itself.
#pragma once

#include <map>
#include <vector>

#include "bench.hpp"

namespace foregather::device_bench {

struct Family {
    std::int64_t calls = 0;
    double seconds = 0;
    double flops = 0; // a multiply and an add are two
    double bytes = 0; // if each input and output moved once
};

class FamilyKernels final : public kernels::Kernels {
public:
    // document: tokens of each of the pack's documents, which attention's operations depend on.
    FamilyKernels(Bench& bench, Elements document) : bench_(bench), document_(document) {}

    // By name, of all calls since the last. Blocks until they are done.
    std::map<std::string, Family> collect();

    Elements row_multiple() const override { return inner().row_multiple(); }
    void prepare(base::View<const kernels::ProductShape> products) override {
        inner().prepare(products);
    }
    std::string product_name() const override { return inner().product_name(); }
    std::optional<double> product_seconds() const override { return std::nullopt; }

private:
    using ConstSlab = base::ConstSlab;
    using Floats = kernels::Floats;
    using ConstFloats = kernels::ConstFloats;
    using Ids = kernels::Ids;
    using Stream = device::Stream;

    void do_embed(Ids, Elements, ConstSlab, Floats, Elements, Stream&) override;
    void do_rms_norm(ConstFloats, ConstSlab, float, base::Slab, Stream&) override;
    void do_product(ConstSlab, ConstSlab, ConstSlab, Into, Floats, Elements, Stream&) override;
    void do_rope(Floats, Ids, ConstFloats, ConstFloats, int, int, Stream&) override;
    void do_attention(Floats, Floats, Floats, Ids, kernels::AttentionShape, base::Slab, Floats,
                      Stream&) override;
    void do_silu_gate(ConstFloats, ConstFloats, base::Slab, Stream&) override;
    void do_take_rows(ConstFloats, Ids, Floats, Elements, Stream&) override;
    void do_head_begin(kernels::HeadState, Stream&) override;
    void do_head_piece(ConstSlab, ConstSlab, Elements, Ids, kernels::HeadState, Stream&) override;
    void do_head_end(kernels::HeadState, Ids, kernels::HeadResults, Stream&) override;

    kernels::Kernels& inner() const { return *bench_.kernels; }
    // Calls `work` between two events.
    template <class Work>
    void timed(const char* family, double flops, double bytes, Stream& stream, Work work);

    struct Call {
        std::string family;
        Stopwatch watch;
        double flops, bytes;
    };
    Bench& bench_;
    Elements document_;
    std::vector<Call> calls_;
};

} // namespace foregather::device_bench
