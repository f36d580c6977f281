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

// One entry for each row of the head [S]; what is not asked for is empty.
struct RowsOnHost {
    std::vector<float> logprob;
    std::vector<std::uint8_t> greedy;
    std::vector<float> entropy, top_logprobs, logits, hidden;
    std::vector<std::int32_t> top_tokens;

    io::RowResults more() const { return {entropy, top_tokens, top_logprobs, logits, hidden}; }
};

// One set for all passes in flight: the copy of a pass's results is enqueued on the compute stream
// before the next pass, which overwrites them.
class RowsOnDevice {
public:
    RowsOnDevice(device::Device& device, const model::HeadWants& wants, base::Elements rows,
                 base::Elements vocabulary, base::Elements width);

    // Where a pack of n rows puts its results.
    void point(model::PackView& pack, base::Elements n) const;
    // Enqueues the copies; `to` must live until they are done.
    void copy_out(RowsOnHost& to, base::Elements n, device::Device& device,
                  device::Stream& stream) const;

private:
    base::Elements top_k_, vocabulary_, width_; // 0: not asked for
    bool with_entropy_;
    device::Buffer<float> logprob_, entropy_, top_logprobs_, logits_, hidden_;
    device::Buffer<std::uint8_t> greedy_;
    device::Buffer<std::int32_t> top_tokens_;
};

// What is asked for beside log-probabilities, for one row.
base::Bytes bytes_of_row(const model::HeadWants& wants, base::Elements vocabulary,
                         base::Elements width);
io::ScoreLayout score_layout(const Inputs& inputs, const deck::ScoreSection& score);
// Documents whose windows lie in several packs.
std::vector<io::SplitDocument> split_documents(const Inputs& inputs);

} // namespace foregather::job
