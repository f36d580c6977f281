// SPDX-License-Identifier: Apache-2.0
// The datasets of /score and the marks of packs: names, units, what they hold before a run.
// Who writes what into them, and when, is decided by results_file.cpp.
#pragma once

#include <cstdint>

#include <foregather/io/results_file.hpp>

namespace foregather::io {

namespace score_path {
inline constexpr const char* logprob = "/score/logprob";
inline constexpr const char* greedy = "/score/greedy";
inline constexpr const char* entropy = "/score/entropy";
inline constexpr const char* top_tokens = "/score/top_token";
inline constexpr const char* top_logprobs = "/score/top_logprob";
inline constexpr const char* logits = "/score/logits";
inline constexpr const char* hidden = "/score/hidden_states";
inline constexpr const char* offsets = "/score/offsets";
inline constexpr const char* id = "/score/id";
inline constexpr const char* nll = "/score/document_nll";
inline constexpr const char* scored_tokens = "/score/document_scored_tokens";
inline constexpr const char* status = "/score/document_status";
inline constexpr const char* packs_done = "/provenance/packs_done";
} // namespace score_path

// Creates and fills all of /score, its attributes with NaN and 0, and /provenance/packs_done, in a
// file that this process alone has open for writing, by writes of at most piece_bytes. Returns
// bytes written.
std::int64_t lay_out(const File& file, const ScoreLayout& score, std::int64_t piece_bytes);

// Gives the attributes of /score their values, in their place.
void overwrite_summary(const File& file, const Summary& summary);

// Streams what is stored of each document; document_bytes is [documents] or empty. For one rank.
struct DocumentResults {
    const Dataset& nll;
    const Dataset& scored_tokens;
    const Dataset& status;
};
Summary summarise(const DocumentResults& documents, std::int64_t count,
                  const std::vector<std::int64_t>& document_bytes);

} // namespace foregather::io
