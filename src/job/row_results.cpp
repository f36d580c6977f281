// SPDX-License-Identifier: Apache-2.0
// Sizes and copies; what the numbers are is the kernels' business.
#include "row_results.hpp"

namespace foregather::job {

model::HeadWants head_wants(const deck::ScoreSection& score) {
    return {score.temperature, score.entropy, score.top_k, score.logits, score.hidden_states};
}

RowsOnDevice::RowsOnDevice(device::Device& device, const model::HeadWants& wants,
                           base::Elements rows, base::Elements vocabulary, base::Elements width)
    : top_k_(wants.top_k), vocabulary_(wants.logits ? vocabulary : 0),
      width_(wants.hidden ? width : 0), with_entropy_(wants.entropy),
      logprob_(device, rows, "log-probabilities"),
      entropy_(device, wants.entropy ? rows : 0, "entropies"),
      top_logprobs_(device, rows * top_k_, "log-probabilities of the most likely tokens"),
      logits_(device, rows * vocabulary_, "logits (score.logits)"),
      hidden_(device, rows * width_, "hidden states (score.hidden_states)"),
      greedy_(device, rows, "greedy marks"),
      top_tokens_(device, rows * top_k_, "most likely tokens of each row") {}

void RowsOnDevice::point(model::PackView& pack, base::Elements n) const {
    pack.results = {logprob_.first(n), greedy_.first(n), entropy_.first(with_entropy_ ? n : 0),
                    top_tokens_.first(n * top_k_), top_logprobs_.first(n * top_k_)};
    pack.logits = logits_.first(n * vocabulary_);
    pack.hidden = hidden_.first(n * width_);
}

void RowsOnDevice::copy_out(RowsOnHost& to, base::Elements n, device::Device& device,
                            device::Stream& stream) const {
    const auto copy = [&]<class T>(const device::Buffer<T>& from, std::vector<T>& host,
                                   base::Elements count) {
        host.resize(static_cast<std::size_t>(count));
        device.copy_out(base::View<const T>(from.first(count)), base::View<T>(host), stream);
    };
    copy(logprob_, to.logprob, n);
    copy(greedy_, to.greedy, n);
    copy(entropy_, to.entropy, with_entropy_ ? n : 0);
    copy(top_tokens_, to.top_tokens, n * top_k_);
    copy(top_logprobs_, to.top_logprobs, n * top_k_);
    copy(logits_, to.logits, n * vocabulary_);
    copy(hidden_, to.hidden, n * width_);
}

base::Bytes bytes_of_row(const model::HeadWants& wants, base::Elements vocabulary,
                         base::Elements width) {
    const base::Elements floats = (wants.entropy ? 1 : 0) + 2 * wants.top_k +
                                  (wants.logits ? vocabulary : 0) + (wants.hidden ? width : 0);
    return base::bytes_of(floats, base::DType::f32); // ids have the size of a float
}

io::ScoreLayout score_layout(const Inputs& inputs, const deck::ScoreSection& score) {
    return {*inputs.tokens,
            std::ssize(inputs.packs.packs),
            score.entropy,
            score.top_k,
            score.logits ? inputs.config.vocabulary : 0,
            score.hidden_states ? inputs.config.width : 0};
}

std::vector<io::SplitDocument> split_documents(const Inputs& inputs) {
    std::vector<io::SplitDocument> split;
    for (const std::int64_t d : inputs.packs.split_documents) {
        const base::Elements end = inputs.tokens->offsets()[static_cast<std::size_t>(d) + 1];
        split.push_back({d, {window_at(*inputs.tokens, d, 0, inputs.packs.cut).score_begin, end}});
    }
    return split;
}

} // namespace foregather::job
