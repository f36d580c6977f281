// SPDX-License-Identifier: Apache-2.0
// Counting operations and bytes.
#include "plan_work.hpp"

#include <algorithm>

namespace foregather::job {
namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

double pairs_of(base::Elements n, std::int64_t window) {
    const base::Elements seen = window > 0 ? std::min<base::Elements>(window, n) : n;
    return real(seen) * real(seen + 1) / 2 + real(n - seen) * real(seen);
}

// The matrices of a unit, added up.
struct Matrices {
    double elements = 0, in = 0, out = 0;
};

Matrices matrices_of(const shard::UnitSpec& unit) {
    Matrices sum;
    for (const shard::TensorPart& part : unit.parts) {
        if (part.shape.size() == 2) {
            sum.elements += real(part.elements());
            sum.in += real(part.shape[1]);
            sum.out += real(part.rows);
        }
    }
    return sum;
}

struct Sizes {
    double tokens, rows, word; // T, T as products compute it, bytes of a weight
    double query, key;         // H D, K D
    explicit Sizes(const model::ModelConfig& c, const Load& load)
        : tokens(real(load.tokens)),
          rows(real((load.tokens + load.row_multiple - 1) / load.row_multiple * load.row_multiple)),
          word(real(base::size_of(load.weights))), query(real(c.heads) * c.head_dim),
          key(real(c.kv_heads) * c.head_dim) {}
};

constexpr double fp32 = 4;

UseWork layer_forward(const model::ModelConfig& c, const shard::UnitSpec& unit, int index,
                      const Load& load) {
    const Sizes s(c, load);
    const Matrices m = matrices_of(unit);
    const double pairs = attended_pairs(load, c.windows[static_cast<std::size_t>(index)]);
    UseWork work;
    work.product_flop = 2 * m.elements * s.rows;
    work.product_bytes = s.word * m.elements + s.rows * (s.word * m.in + fp32 * m.out);
    work.attention_flop = 4 * s.query * pairs;
    work.attention_bytes = s.tokens * (fp32 * (s.query + 2 * s.key) + s.word * s.query);
    const double norms = 2 * (fp32 + s.word) * real(c.width);
    const double heads = (c.qk_norm ? 4 : 2) * fp32 * (s.query + s.key);
    work.other_bytes = s.tokens * (norms + heads + (2 * fp32 + s.word) * real(c.ffn));
    return work;
}

UseWork head_forward(const model::ModelConfig& c, const shard::UnitSpec& unit, const Load& load) {
    const Sizes s(c, load);
    const double rows = real(unit.parts.front().rows);
    UseWork work;
    work.product_flop = 2 * rows * real(c.width) * s.rows;
    work.product_bytes =
        s.word * rows * real(c.width) + s.rows * (s.word * real(c.width) + fp32 * rows);
    work.other_bytes = s.tokens * fp32 * rows; // logits, read for the log-sum-exp
    return work;
}

// The share of a pack's tokens that a piece of the embedding is looked up for.
double share_of(const model::ModelConfig& c, const shard::UnitSpec& unit) {
    return real(unit.parts.front().rows) / real(c.vocabulary);
}

} // namespace

double attended_pairs(const Load& load, std::int64_t window) {
    const base::Elements document = std::clamp<base::Elements>(load.document, 1, load.tokens);
    return real(load.tokens / document) * pairs_of(document, window) +
           pairs_of(load.tokens % document, window);
}

UseWork& UseWork::operator+=(const UseWork& more) {
    product_flop += more.product_flop;
    product_bytes += more.product_bytes;
    attention_flop += more.attention_flop;
    attention_bytes += more.attention_bytes;
    other_bytes += more.other_bytes;
    return *this;
}

UseWork forward_work(const model::ModelConfig& config, const model::Chain& chain,
                     const model::ChainUse& use, const Load& load) {
    const shard::UnitSpec& unit = chain.units[static_cast<std::size_t>(use.unit)];
    if (use.role == model::Role::layer) {
        return layer_forward(config, unit, use.index, load);
    }
    if (use.role == model::Role::head) {
        return head_forward(config, unit, load);
    }
    UseWork work;
    const Sizes s(config, load);
    work.other_bytes = share_of(config, unit) * s.tokens * (s.word + fp32) * real(config.width);
    return work;
}

UseWork backward_work(const model::ModelConfig& config, const model::Chain& chain,
                      const model::ChainUse& use, const Load& load) {
    const shard::UnitSpec& unit = chain.units[static_cast<std::size_t>(use.unit)];
    const Sizes s(config, load);
    UseWork work;
    if (use.role == model::Role::embedding) {
        // The whole gradient is cleared, then added to.
        work.other_bytes = fp32 * real(unit.elements) +
                           share_of(config, unit) * s.tokens * 2 * fp32 * real(config.width);
        return work;
    }
    const UseWork forward = forward_work(config, chain, use, load);
    if (use.role == model::Role::head || load.recompute) {
        work = forward;
    }
    const Matrices m = matrices_of(unit);
    work.product_flop += 2 * forward.product_flop;
    work.product_bytes +=
        (s.word + fp32) * m.elements + s.rows * ((s.word + fp32) * m.in + 2 * s.word * m.out);
    work.attention_flop += 2.5 * forward.attention_flop;
    if (use.role == model::Role::layer) { // q, k, v and their gradients, out and its gradient
        work.attention_bytes +=
            s.tokens * (2 * fp32 * (s.query + 2 * s.key) + (s.word + fp32) * s.query);
    }
    work.other_bytes += 2 * forward.other_bytes;
    return work;
}

std::vector<UseWork> work_of_pass(const model::ModelConfig& config, const model::Chain& chain,
                                  const Load& load, bool trains) {
    std::vector<UseWork> work;
    for (const model::ChainUse& use : chain.uses) {
        work.push_back(forward_work(config, chain, use, load));
    }
    for (auto use = chain.uses.rbegin(); trains && use != chain.uses.rend(); ++use) {
        work.push_back(backward_work(config, chain, *use, load));
    }
    return work;
}

} // namespace foregather::job
