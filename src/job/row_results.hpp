// SPDX-License-Identifier: Apache-2.0
// What the head gives for the rows of a pack, on the device and on the host: sized once for the
// largest pack, and only what the deck asks for.
#pragma once

#include <vector>

#include <foregather/deck/sections.hpp>
#include <foregather/device/device.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/model/transformer.hpp>

#include "inputs.hpp"

namespace foregather::job {

model::HeadWants head_wants(const deck::ScoreSection& score);

// One entry for each row of the head [S], for up to `rows` of them; what is not asked for is empty.
template <device::Where where>
struct RowBuffers {
    RowBuffers() = default;
    RowBuffers(device::Device& device, const model::HeadWants& wants, base::Elements rows,
               const model::ModelConfig& config)
        : top_k(wants.top_k), vocabulary(wants.logits ? config.vocabulary : 0),
          width(wants.hidden ? config.width : 0), with_entropy(wants.entropy),
          logprob(device, rows, "log-probabilities"),
          entropy(device, wants.entropy ? rows : 0, "entropies"),
          top_logprobs(device, rows * top_k, "log-probabilities of the most likely tokens"),
          logits(device, rows * vocabulary, "logits (score.logits)"),
          hidden(device, rows * width, "hidden states (score.hidden_states)"),
          greedy(device, rows, "greedy marks"),
          top_tokens(device, rows * top_k, "most likely tokens of each row") {}

    base::Elements top_k = 0, vocabulary = 0, width = 0; // 0: not asked for
    bool with_entropy = false;
    device::Buffer<float, where> logprob, entropy, top_logprobs, logits, hidden;
    device::Buffer<std::uint8_t, where> greedy;
    device::Buffer<std::int32_t, where> top_tokens;
};

// Of one pass in flight: n rows.
struct RowsOnHost : RowBuffers<device::Where::host> {
    using RowBuffers::RowBuffers;

    base::Elements n = 0;

    base::View<const float> logprobs() const { return logprob.first(n); }
    base::View<const std::uint8_t> greedy_marks() const { return greedy.first(n); }
    io::RowResults more() const {
        return {entropy.first(with_entropy ? n : 0), top_tokens.first(n * top_k),
                top_logprobs.first(n * top_k), logits.first(n * vocabulary),
                hidden.first(n * width)};
    }
};

// One set for all passes in flight: the copy of a pass's results is enqueued on the compute stream
// before the next pass, which overwrites them.
struct RowsOnDevice : RowBuffers<device::Where::device> {
    using RowBuffers::RowBuffers;

    // Where a pack of n rows puts its results.
    void point(model::PackView& pack, base::Elements n) const;
    // Enqueues the copies of n rows; `to` must live until they are done.
    void copy_out(RowsOnHost& to, base::Elements n, device::Device& device,
                  device::Stream& stream) const;
};

// What is asked for beside log-probabilities, for one row.
base::Bytes bytes_of_row(const model::HeadWants& wants, base::Elements vocabulary,
                         base::Elements width);
io::ScoreLayout score_layout(const Inputs& inputs, const deck::ScoreSection& score);
// Documents whose windows lie in several packs.
std::vector<io::SplitDocument> split_documents(const Inputs& inputs);

} // namespace foregather::job
