// SPDX-License-Identifier: Apache-2.0
// Opening, comparing, refusing, for a bench.
#include "bench_inputs.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>
#include <foregather/io/digest.hpp>

#include "model_files.hpp"

namespace foregather::job {
namespace {

void append(BenchPack& pack, const std::vector<std::int32_t>& ids) {
    PackInputs& in = pack.inputs;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto at = static_cast<std::int32_t>(in.ids.size());
        in.ids.push_back(ids[i]);
        in.positions.push_back(static_cast<std::int32_t>(i));
        if (i + 1 < ids.size()) {
            in.rows.push_back(at);
            in.targets.push_back(ids[i + 1]);
        }
    }
    in.offsets.push_back(static_cast<std::int32_t>(in.ids.size()));
    const auto n = std::ssize(ids);
    ++pack.documents;
    pack.tokens += n;
    pack.longest = std::max(pack.longest, n);
    pack.attended += static_cast<double>(n) * static_cast<double>(n + 1);
}

} // namespace

BenchInputs open_bench_inputs(const deck::Deck& deck, bool check_files) {
    const deck::Sections& s = deck.sections();
    BenchInputs in;
    OpenedWeights opened = open_weights(s.model.weights);
    in.weights = std::move(opened.file);
    in.config = std::move(opened.config);
    in.tokens = std::make_unique<io::TokenFile>(s.data.tokens);
    in.notes = in.config.notes;
    const std::string note =
        compare_tokenizers(deck, {in.weights->path(), in.weights->tokenizer_sha256()},
                           {in.tokens->path(), in.tokens->tokenizer_sha256()});
    if (!note.empty()) {
        in.notes.push_back(note);
    }
    if (check_files) {
        in.tokens->check_ids(in.config.vocabulary);
        in.tokens_sha256 = io::sha256_of_file(in.tokens->path());
    }
    in.chain = model::make_chain(in.config, s.fsdp.piece_bytes);
    return in;
}

BenchPack bench_pack(const io::TokenFile& file, std::int64_t tokens, std::int64_t positions) {
    const std::vector<std::int64_t>& offsets = file.offsets();
    BenchPack pack;
    pack.inputs.offsets.push_back(0);
    for (;;) {
        const std::int64_t before = pack.tokens;
        for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
            std::int64_t first = offsets[d];
            while (offsets[d + 1] - first >= 2) {
                const std::int64_t n =
                    std::min({offsets[d + 1] - first, positions, tokens - pack.tokens});
                append(pack, file.read(first, n));
                if (pack.tokens == tokens) {
                    return pack;
                }
                first += n;
            }
        }
        if (pack.tokens == before) {
            base::refuse(file.path() + ": none of its " + std::to_string(file.documents()) +
                         " documents has two tokens: a bench has nothing to compute");
        }
    }
}

} // namespace foregather::job
