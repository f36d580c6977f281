// SPDX-License-Identifier: Apache-2.0
// Next-fit packing in file order keeps every pack a contiguous range of tokens, so of results too.
#include "packs.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

base::Elements scored_of(const io::TokenFile& tokens, std::int64_t d, base::Elements length) {
    return std::max<base::Elements>(length - tokens.score_from(d), 0);
}

} // namespace

PackPlan make_packs(const io::TokenFile& tokens, base::Elements batch_tokens,
                    std::int64_t max_documents, std::int64_t positions) {
    PackPlan plan;
    plan.documents =
        max_documents > 0 ? std::min(max_documents, tokens.documents()) : tokens.documents();
    const auto& offsets = tokens.offsets();
    Pack pack;
    for (std::int64_t d = 0; d < plan.documents; ++d) {
        const auto i = static_cast<std::size_t>(d);
        const base::Elements length = offsets[i + 1] - offsets[i];
        if (length > positions) {
            base::refuse(tokens.path() + ": document " + std::to_string(d) + " has " +
                         std::to_string(length) + " tokens, the model has " +
                         std::to_string(positions) +
                         " positions; cut it when tokenizing (tools/tokenize --split-tokens)");
        }
        if (pack.documents > 0 && pack.tokens + length > batch_tokens) {
            plan.packs.push_back(pack);
            pack = Pack{d, 0, offsets[i], 0, 0};
        }
        ++pack.documents;
        pack.tokens += length;
        pack.scored += scored_of(tokens, d, length);
        plan.longest = std::max(plan.longest, length);
        plan.long_documents += length > batch_tokens ? 1 : 0;
    }
    if (pack.documents > 0) {
        plan.packs.push_back(pack);
    }
    for (const Pack& p : plan.packs) {
        plan.tokens += p.tokens;
        plan.scored += p.scored;
        plan.most_tokens = std::max(plan.most_tokens, p.tokens);
    }
    if (plan.scored == 0) {
        base::refuse(
            tokens.path() + ": none of its " + std::to_string(plan.documents) +
            " documents has a token that can be scored: a document's first token has no context, "
            "and /score_from may leave out more");
    }
    return plan;
}

void fill(PackInputs& inputs, const Pack& pack, const io::TokenFile& tokens) {
    inputs.ids = tokens.read(pack.first_token, pack.tokens);
    inputs.positions.clear();
    inputs.offsets.assign(1, 0);
    inputs.rows.clear();
    inputs.targets.clear();
    for (std::int64_t d = pack.first_document; d < pack.first_document + pack.documents; ++d) {
        const auto i = static_cast<std::size_t>(d);
        const auto begin = static_cast<std::int32_t>(tokens.offsets()[i] - pack.first_token);
        const auto end = static_cast<std::int32_t>(tokens.offsets()[i + 1] - pack.first_token);
        for (std::int32_t t = begin; t < end; ++t) {
            inputs.positions.push_back(t - begin);
            if (t - begin >= tokens.score_from(d)) {
                inputs.rows.push_back(t - 1);
                inputs.targets.push_back(inputs.ids[static_cast<std::size_t>(t)]);
            }
        }
        inputs.offsets.push_back(end);
    }
}

} // namespace foregather::job
