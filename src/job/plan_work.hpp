// SPDX-License-Identifier: Apache-2.0
// What each use of a pass computes and what memory it touches, counted from shapes: operations and
// bytes, no seconds.
#pragma once

#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/config.hpp>

namespace foregather::job {

// A rank's pack.
struct Load {
    base::Elements tokens = 0;              // T
    base::Elements document = 0;            // tokens of each of its documents but the last
    base::DType weights = base::DType::f32; // of gathered weights, and of what meets them
    base::Elements row_multiple = 1;        // products compute whole multiples of so many tokens
    bool recompute = true;                  // layers are computed again in backward
};

// Keys that the queries of a pack see, all added up: a document of n tokens has n (n + 1) / 2, or
// with a window of w keys w (w + 1) / 2 + (n - w) w.
double attended_pairs(const Load& load, std::int64_t window);

// Of one use. A product of T rows and a matrix of in x out takes 2 T in out operations; attention 4
// H D for each pair of query and key that it sees.
struct UseWork {
    double product_flop = 0, product_bytes = 0;
    double attention_flop = 0, attention_bytes = 0;
    double other_bytes = 0; // norms, RoPE, gates, lookups, the log-sum-exp

    double flop() const { return product_flop + attention_flop; }
    UseWork& operator+=(const UseWork& more);
};

// Forward of a use. Bytes are those of this program's kernels: what products read is of the
// weights' type, what they write is fp32.
UseWork forward_work(const model::ModelConfig& config, const model::Chain& chain,
                     const model::ChainUse& use, const Load& load);
// Backward: every product twice, for the gradients of its input and of its weights; attention 2.5
// times (five products for two: Dao, "FlashAttention-2", 2023, section 3.1); forward once more for
// layers if they are recomputed, and for the head always, which keeps no logits.
UseWork backward_work(const model::ModelConfig& config, const model::Chain& chain,
                      const model::ChainUse& use, const Load& load);

// Of the uses of a pass, in order: forward, and for training the same backward in reverse.
std::vector<UseWork> work_of_pass(const model::ModelConfig& config, const model::Chain& chain,
                                  const Load& load, bool trains);

} // namespace foregather::job
