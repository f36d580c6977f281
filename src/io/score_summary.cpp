// SPDX-License-Identifier: Apache-2.0
// Sums over documents as they are stored, in document order, in double, in memory flat in their
// number. The formulas are told in results_file.hpp.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "score_layout.hpp"

namespace foregather::io {

namespace {

constexpr std::int64_t documents_at_once = std::int64_t{1} << 18;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// One document as it is stored.
struct Row {
    std::int64_t document;
    double nll;
    std::int64_t scored_tokens;
    std::uint8_t status;
};

void for_each_document(const DocumentResults& stored, std::int64_t count,
                       const std::function<void(const Row&)>& use) {
    const auto capacity = static_cast<std::size_t>(std::min(documents_at_once, count));
    std::vector<double> nll(capacity);
    std::vector<std::int64_t> scored(capacity);
    std::vector<std::uint8_t> status(capacity);
    for (std::int64_t first = 0; first < count; first += documents_at_once) {
        const auto n = static_cast<std::size_t>(std::min(documents_at_once, count - first));
        read_range(stored.nll, first, base::View<double>(nll.data(), n), score_path::nll);
        read_range(stored.scored_tokens, first, base::View<std::int64_t>(scored.data(), n),
                   score_path::scored_tokens);
        read_range(stored.status, first, base::View<std::uint8_t>(status.data(), n),
                   score_path::status);
        for (std::size_t i = 0; i < n; ++i) {
            use({first + static_cast<std::int64_t>(i), nll[i], scored[i], status[i]});
        }
    }
}

bool counts(const Row& row) {
    return row.status == static_cast<std::uint8_t>(DocumentStatus::scored);
}

void tally(Summary& summary, const Row& row) {
    switch (static_cast<DocumentStatus>(row.status)) {
    case DocumentStatus::scored:
        ++summary.scored_documents;
        summary.scored_tokens += row.scored_tokens;
        summary.total_nll += row.nll;
        return;
    case DocumentStatus::nothing_to_score:
        ++summary.empty_documents;
        return;
    case DocumentStatus::not_finite:
        ++summary.not_finite_documents;
        return;
    case DocumentStatus::not_run:
        ++summary.documents_not_run;
        return;
    }
    base::fail(std::string(score_path::status) + "[" + std::to_string(row.document) + "] is " +
               std::to_string(row.status) + ", which means nothing");
}

} // namespace

Summary summarise(const DocumentResults& documents, std::int64_t count,
                  const std::vector<std::int64_t>& document_bytes) {
    Summary summary;
    std::int64_t bytes = 0;
    for_each_document(documents, count, [&](const Row& row) {
        tally(summary, row);
        if (counts(row) && !document_bytes.empty()) {
            bytes += document_bytes[static_cast<std::size_t>(row.document)];
        }
    });
    const auto tokens = static_cast<double>(summary.scored_tokens);
    summary.loss = summary.scored_tokens > 0 ? summary.total_nll / tokens : not_a_number;
    summary.perplexity = std::exp(summary.loss);
    if (bytes > 0) {
        summary.bits_per_byte = summary.total_nll / std::numbers::ln2 / static_cast<double>(bytes);
    }
    summary.standard_error = not_a_number;
    if (summary.scored_documents >= 2) {
        double squares = 0.0;
        for_each_document(documents, count, [&](const Row& row) {
            if (counts(row)) {
                const double rest = row.nll - summary.loss * static_cast<double>(row.scored_tokens);
                squares += rest * rest;
            }
        });
        const auto d = static_cast<double>(summary.scored_documents);
        summary.standard_error = std::sqrt(d / (d - 1.0) * squares) / tokens;
    }
    return summary;
}

} // namespace foregather::io
