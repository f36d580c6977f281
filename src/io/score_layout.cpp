// SPDX-License-Identifier: Apache-2.0
// Lays out /score before a run and describes it after one.
// Who writes what into it, and when, is decided by results_file.cpp.
#include "score_layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace foregather::io {

namespace {

template <class T>
std::vector<std::byte> bytes_of_one(T value) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    return {bytes.begin(), bytes.end()};
}

// What is stored of every run.
std::vector<Layout> plain_layouts(const ScoreLayout& score) {
    const base::Shape tokens{score.tokens.tokens()}, documents{score.tokens.documents()};
    const auto not_run = static_cast<std::uint8_t>(DocumentStatus::not_run);
    return {
        {score_path::logprob,
         H5T_IEEE_F32LE,
         tokens,
         "nat",
         "natural logarithm of the probability of each token given those before it in its "
         "document; NaN where not scored",
         {"token"},
         bytes_of_one(std::numeric_limits<float>::quiet_NaN())},
        {score_path::greedy,
         H5T_STD_U8LE,
         tokens,
         "1",
         "1 where the token was the most likely one, else 0; 0 where not scored",
         {"token"},
         {}},
        {score_path::nll,
         H5T_IEEE_F64LE,
         documents,
         "nat",
         "sum of -logprob over the scored tokens of each document",
         {"document"},
         {}},
        {score_path::scored_tokens,
         H5T_STD_I64LE,
         documents,
         "token",
         "number of scored tokens of each document",
         {"document"},
         {}},
        {score_path::status,
         H5T_STD_U8LE,
         documents,
         "1",
         "0 scored, 1 nothing to score, 2 a log-probability is not finite (left out of the loss), "
         "3 not run",
         {"document"},
         bytes_of_one(not_run)},
        {score_path::packs_done,
         H5T_STD_U8LE,
         {score.packs},
         "1",
         "1 once the scores of a pack of documents are on disk",
         {"pack"},
         {}},
    };
}

// What is predicted after each token, as far as it is asked for.
void add_row_layouts(const ScoreLayout& score, std::vector<Layout>& layouts) {
    const std::string which =
        " of the distribution predicted after each token, in the window that scores the token "
        "after it (where that is not scored: in the one that gives the token the longest context)";
    const std::vector<std::byte> unknown = bytes_of_one(std::numeric_limits<float>::quiet_NaN());
    const auto add = [&](const char* path, hid_t type, std::int64_t columns, const char* units,
                         const std::string& long_name, const char* label,
                         const std::vector<std::byte>& fill) {
        if (columns > 0) {
            layouts.push_back(
                {path,
                 type,
                 {score.tokens.tokens(), columns},
                 units,
                 long_name + "; " + (type == H5T_IEEE_F32LE ? "NaN" : "-1") + " where not computed",
                 {"token", label},
                 fill});
        }
    };
    if (score.entropy) {
        layouts.push_back({score_path::entropy,
                           H5T_IEEE_F32LE,
                           {score.tokens.tokens()},
                           "nat",
                           "entropy" + which + ", after temperature; NaN where not computed",
                           {"token"},
                           unknown});
    }
    add(score_path::top_tokens, H5T_STD_I32LE, score.top_k, "1",
        "most likely tokens" + which + ", the most likely first, of equal ones the lower id",
        "rank", bytes_of_one(std::int32_t{-1}));
    add(score_path::top_logprobs, H5T_IEEE_F32LE, score.top_k, "nat",
        "log-probabilities of top_token, after temperature", "rank", unknown);
    add(score_path::logits, H5T_IEEE_F32LE, score.vocabulary, "1",
        "logits" + which + ", before temperature", "vocabulary", unknown);
    add(score_path::hidden, H5T_IEEE_F32LE, score.width, "1",
        "hidden state after the final norm, from which the head makes the logits" + which, "width",
        unknown);
}

// Everything but offsets and ids, whose values are known.
std::vector<Layout> empty_layouts(const ScoreLayout& score) {
    std::vector<Layout> layouts = plain_layouts(score);
    add_row_layouts(score, layouts);
    return layouts;
}

std::int64_t stored_bytes(const Layout& layout) {
    return base::elements_of(layout.shape) * static_cast<std::int64_t>(H5Tget_size(layout.type));
}

Type type_of_ids(const TokenFile& tokens) {
    return Type(check(H5Dget_type(tokens.ids().handle()), "read the type of /id"));
}

// /score/id: the token file's, as stored, in pieces.
std::int64_t copy_ids(const File& file, const TokenFile& tokens, std::int64_t piece_bytes) {
    constexpr std::int64_t at_once_bytes = std::int64_t{8} << 20; // in memory
    const Type type = type_of_ids(tokens);
    const Layout layout{score_path::id,
                        type.handle(),
                        {tokens.documents()},
                        "",
                        "identifier of each document, from the token file",
                        {"document"},
                        {}};
    const Dataset target = create_dataset(file, layout);
    const auto bytes = static_cast<std::int64_t>(H5Tget_size(type.handle()));
    std::vector<std::byte> piece_memory;
    for_each_piece({{0}, layout.shape}, bytes, std::min(piece_bytes, at_once_bytes),
                   [&](const Block& piece, base::Elements) {
                       piece_memory.resize(static_cast<std::size_t>(piece.count[0] * bytes));
                       read_block(tokens.ids(), type.handle(), piece, piece_memory.data(),
                                  tokens.path() + ": /id");
                       write_block(target, type.handle(), piece, piece_memory.data(), layout.path);
                   });
    return stored_bytes(layout);
}

Group open_score(const File& file) {
    return Group(check(H5Gopen2(file.handle(), "/score", H5P_DEFAULT), "open group /score"));
}

// The attributes of /score, of which nothing is known yet.
void lay_out_summary(const File& file, bool with_bytes) {
    const Group score = open_score(file);
    const hid_t group = score.handle();
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    write_attribute(group, "long_name",
                    std::string("loss: mean of -logprob in nat over all scored tokens; perplexity: "
                                "exp(loss); standard_error: of the loss, documents as the sampling "
                                "unit, sqrt(D/(D-1) * sum_d (nll_d - loss*n_d)^2)/N over the D "
                                "scored documents with n_d of N scored tokens; bits_per_byte: "
                                "sum of nll_d / ln 2 / bytes of the scored documents"));
    write_attribute(group, "loss", unknown);
    write_attribute(group, "perplexity", unknown);
    write_attribute(group, "standard_error", unknown);
    write_attribute(group, "scored_tokens", std::int64_t{0});
    write_attribute(group, "scored_documents", std::int64_t{0});
    write_attribute(group, "not_finite_documents", std::int64_t{0});
    if (with_bytes) {
        write_attribute(group, "bits_per_byte", unknown);
    }
}

} // namespace

base::Bytes bytes_of(const ScoreLayout& layout) {
    std::int64_t bytes = std::ssize(layout.tokens.offsets()) * std::int64_t{sizeof(std::int64_t)};
    for (const Layout& dataset : empty_layouts(layout)) {
        bytes += stored_bytes(dataset);
    }
    if (layout.tokens.has_ids()) {
        bytes += layout.tokens.documents() *
                 static_cast<std::int64_t>(H5Tget_size(type_of_ids(layout.tokens).handle()));
    }
    return {bytes};
}

std::int64_t lay_out(const File& file, const ScoreLayout& score, std::int64_t piece_bytes) {
    std::int64_t bytes = 0;
    for (const Layout& layout : empty_layouts(score)) {
        const Dataset created = create_dataset(file, layout);
        bytes += stored_bytes(layout);
    }
    const std::vector<std::int64_t>& offsets = score.tokens.offsets();
    const Layout layout{score_path::offsets,
                        H5T_STD_I64LE,
                        {std::ssize(offsets)},
                        "token",
                        "document d is tokens [offsets[d], offsets[d+1]) of the token file",
                        {"document"},
                        {}};
    write_range(create_dataset(file, layout), 0, base::View<const std::int64_t>(offsets),
                layout.path, piece_bytes);
    bytes += stored_bytes(layout);
    lay_out_summary(file, score.tokens.has_bytes());
    return bytes + (score.tokens.has_ids() ? copy_ids(file, score.tokens, piece_bytes) : 0);
}

void overwrite_summary(const File& file, const Summary& summary) {
    const Group score = open_score(file);
    const hid_t group = score.handle();
    overwrite_attribute(group, "loss", summary.loss);
    overwrite_attribute(group, "perplexity", summary.perplexity);
    overwrite_attribute(group, "standard_error", summary.standard_error);
    overwrite_attribute(group, "scored_tokens", summary.scored_tokens);
    overwrite_attribute(group, "scored_documents", summary.scored_documents);
    overwrite_attribute(group, "not_finite_documents", summary.not_finite_documents);
    if (summary.bits_per_byte) {
        overwrite_attribute(group, "bits_per_byte", *summary.bits_per_byte);
    }
}

} // namespace foregather::io
