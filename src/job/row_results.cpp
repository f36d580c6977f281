// SPDX-License-Identifier: Apache-2.0
// Sizes and copies; what the numbers are is the kernels' business.
#include "row_results.hpp"

namespace foregather::job {

model::HeadWants head_wants(const deck::ScoreSection& score) {
    return {score.temperature, score.entropy, score.top_k, score.logits, score.hidden_states};
}

void RowsOnDevice::point(model::PackView& pack, base::Elements n) const {
    pack.results = {logprob.first(n), greedy.first(n), entropy.first(with_entropy ? n : 0),
                    top_tokens.first(n * top_k), top_logprobs.first(n * top_k)};
    pack.logits = logits.first(n * vocabulary);
    pack.hidden = hidden.first(n * width);
}

void RowsOnDevice::copy_out(RowsOnHost& to, base::Elements n, device::Device& device,
                            device::Stream& stream) const {
    const auto copy = [&]<class T>(const device::Buffer<T>& from, const device::HostBuffer<T>& host,
                                   base::Elements count) {
        device.copy_out(base::View<const T>(from.first(count)), host.first(count), stream);
    };
    to.n = n;
    copy(logprob, to.logprob, n);
    copy(greedy, to.greedy, n);
    copy(entropy, to.entropy, with_entropy ? n : 0);
    copy(top_tokens, to.top_tokens, n * top_k);
    copy(top_logprobs, to.top_logprobs, n * top_k);
    copy(logits, to.logits, n * vocabulary);
    copy(hidden, to.hidden, n * width);
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
