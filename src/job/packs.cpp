// SPDX-License-Identifier: Apache-2.0
// Next-fit packing in file order keeps what a pack scores a contiguous range of tokens.
#include "packs.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

// Packs in the making.
class Packer {
public:
    Packer(base::Elements batch_tokens, PackPlan& plan)
        : batch_tokens_(batch_tokens), plan_(plan) {}

    void add(const Window& window, std::int64_t k) {
        const base::Elements length = window.tokens.size();
        if (pack_.windows > 0 && pack_.tokens + length > batch_tokens_) {
            close();
            if (k > 0 && (plan_.split_documents.empty() ||
                          plan_.split_documents.back() != window.document)) {
                plan_.split_documents.push_back(window.document);
            }
        }
        if (pack_.windows == 0) {
            pack_ = {window.document, k, 0, window.own, window.rows, 0, 0, 0};
        }
        ++pack_.windows;
        pack_.own.end = window.own.end;
        pack_.rows.end = window.rows.end;
        pack_.tokens += length;
        pack_.scored += std::max<base::Elements>(window.scored().size(), 0);
        plan_.longest = std::max(plan_.longest, length);
        plan_.long_windows += length > batch_tokens_ ? 1 : 0;
        pack_.attended += static_cast<double>(length) * static_cast<double>(length + 1);
    }

    void close() {
        if (pack_.windows > 0) {
            plan_.packs.push_back(pack_);
        }
        pack_ = {};
    }

private:
    base::Elements batch_tokens_;
    PackPlan& plan_;
    Pack pack_;
};

base::Range range_of(const io::TokenFile& tokens, std::int64_t document) {
    const auto d = static_cast<std::size_t>(document);
    return {tokens.offsets()[d], tokens.offsets()[d + 1]};
}

void clear(PackInputs& inputs) {
    inputs.ids.clear();
    inputs.positions.clear();
    inputs.offsets.assign(1, 0);
    inputs.rows.clear();
    inputs.targets.clear();
    inputs.scores.clear();
}

base::Range rows_that_score(const Window& w) {
    const base::Range scored = w.scored();
    return {scored.begin - 1, scored.end - 1};
}

// id(t): of token t of the file, in the window. rows: those that the head is asked for.
template <class Id>
void append(PackInputs& inputs, const Window& w, base::Range rows, Id id) {
    const auto here = static_cast<base::Elements>(inputs.ids.size());
    for (base::Elements t = w.tokens.begin; t < w.tokens.end; ++t) {
        inputs.ids.push_back(id(t));
        inputs.positions.push_back(static_cast<std::int32_t>(t - w.tokens.begin));
    }
    inputs.offsets.push_back(static_cast<std::int32_t>(inputs.ids.size()));
    const base::Range scored = w.scored();
    for (base::Elements t = rows.begin; t < rows.end; ++t) {
        const bool scores = t + 1 >= scored.begin && t + 1 < scored.end;
        inputs.rows.push_back(static_cast<std::int32_t>(here + t - w.tokens.begin));
        inputs.targets.push_back(scores ? id(t + 1) : -1);
        inputs.scores.push_back(scores ? t + 1 : -1);
    }
}

} // namespace

Cut make_cut(std::int64_t window, std::int64_t stride) {
    return {window, stride > 0 ? stride : std::max<std::int64_t>(window - 1, 0)};
}

std::int64_t windows_of(const io::TokenFile& tokens, std::int64_t document, const Cut& cut) {
    const base::Elements length = range_of(tokens, document).size();
    if (cut.window == 0 || length <= cut.window) {
        return 1;
    }
    // The last one is the first that reaches the end: a further one would score nothing new.
    return 1 + (length - cut.window + cut.stride - 1) / cut.stride;
}

Window window_at(const io::TokenFile& tokens, std::int64_t document, std::int64_t k,
                 const Cut& cut) {
    const base::Range whole = range_of(tokens, document);
    const auto end_of = [&](std::int64_t window) {
        return cut.window == 0
                   ? whole.end
                   : std::min(whole.begin + window * cut.stride + cut.window, whole.end);
    };
    Window w;
    w.document = document;
    w.tokens = {k == 0 ? whole.begin : whole.begin + k * cut.stride, end_of(k)};
    w.own = {k == 0 ? whole.begin : end_of(k - 1), w.tokens.end};
    w.score_begin = whole.begin + std::min(tokens.score_from(document), whole.size());
    // The row before a token that another window scores is that window's.
    const auto row_at = [&](base::Elements token) {
        return token > whole.begin && token < whole.end && token >= w.score_begin ? token - 1
                                                                                  : token;
    };
    w.rows = {row_at(w.own.begin), row_at(w.own.end)};
    return w;
}

void refuse_too_long(const io::TokenFile& tokens, std::int64_t d, std::int64_t positions) {
    const base::Elements length = range_of(tokens, d).size();
    if (length > positions) {
        base::refuse(tokens.path() + ": document " + std::to_string(d) + " has " +
                     std::to_string(length) + " tokens, the model has " +
                     std::to_string(positions) +
                     " positions; set data.window = " + std::to_string(positions) +
                     " or less to cut it into windows, or cut it when " +
                     "tokenizing (tools/tokenize --split-tokens)");
    }
}

PackPlan make_packs(const io::TokenFile& tokens, base::Elements batch_tokens,
                    std::int64_t max_documents, std::int64_t positions, const Cut& cut) {
    PackPlan plan;
    plan.cut = cut;
    plan.documents =
        max_documents > 0 ? std::min(max_documents, tokens.documents()) : tokens.documents();
    Packer packer(batch_tokens, plan);
    for (std::int64_t d = 0; d < plan.documents; ++d) {
        if (cut.window == 0) {
            refuse_too_long(tokens, d, positions);
        }
        const std::int64_t windows = windows_of(tokens, d, cut);
        for (std::int64_t k = 0; k < windows; ++k) {
            packer.add(window_at(tokens, d, k, cut), k);
        }
        plan.windows += windows;
        plan.cut_documents += windows > 1 ? 1 : 0;
    }
    packer.close();
    for (const Pack& p : plan.packs) {
        plan.tokens += p.tokens;
        plan.rows += p.rows.size();
        plan.scored += p.scored;
        plan.most_tokens = std::max(plan.most_tokens, p.tokens);
        plan.most_rows = std::max(plan.most_rows, p.rows.size());
        plan.most_windows = std::max(plan.most_windows, p.windows);
    }
    if (plan.scored == 0) {
        base::refuse(
            tokens.path() + ": none of its " + std::to_string(plan.documents) +
            " documents has a token that can be scored: a document's first token has no context, "
            "and /score_from may leave out more");
    }
    return plan;
}

void fill(PackInputs& inputs, const Pack& pack, const io::TokenFile& tokens, const Cut& cut,
          bool all_rows) {
    clear(inputs);
    // What the windows cover lies together in the file; where they overlap it is read once.
    const Window first = window_at(tokens, pack.first_document, pack.first_window, cut);
    const base::Elements begin = first.tokens.begin;
    const std::vector<std::int32_t> ids = tokens.read(begin, pack.own.end - begin);
    for_each_window(pack, tokens, cut, [&](const Window& w) {
        append(inputs, w, all_rows ? w.rows : rows_that_score(w),
               [&](base::Elements token) { return ids[static_cast<std::size_t>(token - begin)]; });
    });
}

void fill(PackInputs& inputs, base::View<const Window> windows, const io::TokenFile& tokens) {
    clear(inputs);
    for (const Window& w : windows) {
        const std::vector<std::int32_t> ids = tokens.read(w.tokens.begin, w.tokens.size());
        append(inputs, w, rows_that_score(w), [&](base::Elements token) {
            return ids[static_cast<std::size_t>(token - w.tokens.begin)];
        });
    }
}

} // namespace foregather::job
