// SPDX-License-Identifier: Apache-2.0
// The model by its definition, plainly and in double: what the transformer is held against. Slow
// and without any block, cut or running sum.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "memory_weights.hpp"

namespace foregather::model {

class Reference {
public:
    Reference(const ModelConfig& config, const Tensors& tensors) : c_(config), tensors_(tensors) {}

    // log p of tokens 1.. of one document.
    std::vector<double> score(const std::vector<std::int32_t>& document) const {
        std::vector<Row> x;
        for (const std::int32_t id : document) {
            x.push_back(row_of("model.embed_tokens.weight", static_cast<std::size_t>(id)));
        }
        for (int layer = 0; layer < c_.layers; ++layer) {
            run_layer("model.layers." + std::to_string(layer) + ".",
                      static_cast<std::size_t>(c_.windows[static_cast<std::size_t>(layer)]), x);
        }
        std::vector<double> scores;
        for (std::size_t t = 0; t + 1 < x.size(); ++t) {
            const std::string head = c_.tied ? "model.embed_tokens.weight" : "lm_head.weight";
            const Row logits = product(head, "", norm("model.norm.weight", x[t]));
            double sum = 0;
            for (const double logit : logits) {
                sum += std::exp(logit);
            }
            scores.push_back(logits[static_cast<std::size_t>(document[t + 1])] - std::log(sum));
        }
        return scores;
    }

private:
    using Row = std::vector<double>;

    const std::vector<float>& tensor(const std::string& name) const { return tensors_.at(name); }

    Row row_of(const std::string& name, std::size_t row) const {
        const auto width = static_cast<std::ptrdiff_t>(c_.width);
        const auto first = tensor(name).begin() + static_cast<std::ptrdiff_t>(row) * width;
        return Row(first, first + width);
    }

    Row norm(const std::string& name, const Row& x) const {
        double squares = 0;
        for (const double v : x) {
            squares += v * v;
        }
        const double root = std::sqrt(squares / static_cast<double>(x.size()) +
                                      static_cast<double>(c_.norm_epsilon));
        Row y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            y[i] = x[i] / root * static_cast<double>(tensor(name)[i]);
        }
        return y;
    }

    Row product(const std::string& weight, const std::string& bias, const Row& x) const {
        const std::vector<float>& w = tensor(weight);
        Row y(w.size() / x.size(), 0.0);
        for (std::size_t o = 0; o < y.size(); ++o) {
            y[o] = tensors_.count(bias) > 0 ? static_cast<double>(tensor(bias)[o]) : 0.0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                y[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
            }
        }
        return y;
    }

    void rotate(Row& x, std::size_t position) const {
        const std::vector<float> frequencies = rope_frequencies(c_.rope, c_.head_dim);
        const auto dim = static_cast<std::size_t>(c_.head_dim);
        for (std::size_t head = 0; head < x.size(); head += dim) {
            for (std::size_t j = 0; j < dim / 2; ++j) {
                const double angle =
                    static_cast<double>(position) * static_cast<double>(frequencies[j]);
                const double a = x[head + j], b = x[head + j + dim / 2];
                const double scale = c_.rope.attention_factor;
                x[head + j] = scale * (a * std::cos(angle) - b * std::sin(angle));
                x[head + j + dim / 2] = scale * (b * std::cos(angle) + a * std::sin(angle));
            }
        }
    }

    // Each head of x on its own; x itself where the model has no such norm.
    Row norm_heads(const std::string& name, const Row& x) const {
        if (tensors_.count(name) == 0) {
            return x;
        }
        Row y;
        for (auto head = x.begin(); head != x.end(); head += c_.head_dim) {
            const Row normed = norm(name, Row(head, head + c_.head_dim));
            y.insert(y.end(), normed.begin(), normed.end());
        }
        return y;
    }

    // The query at t sees itself and window - 1 keys before it; window 0: all before it.
    Row attend(const std::vector<Row>& q, const std::vector<Row>& k, const std::vector<Row>& v,
               std::size_t t, std::size_t window) const {
        const auto dim = static_cast<std::size_t>(c_.head_dim);
        const auto shared_by = static_cast<std::size_t>(c_.heads / c_.kv_heads);
        Row out(q[t].size(), 0.0);
        for (std::size_t h = 0; h < static_cast<std::size_t>(c_.heads); ++h) {
            const std::size_t kv = h / shared_by * dim;
            double sum = 0;
            for (std::size_t s = 0; s <= t; ++s) {
                if (window > 0 && t - s >= window) {
                    continue;
                }
                double score = 0;
                for (std::size_t j = 0; j < dim; ++j) {
                    score += q[t][h * dim + j] * k[s][kv + j];
                }
                const double p = std::exp(score / std::sqrt(static_cast<double>(dim)));
                sum += p;
                for (std::size_t j = 0; j < dim; ++j) {
                    out[h * dim + j] += p * v[s][kv + j];
                }
            }
            for (std::size_t j = 0; j < dim; ++j) {
                out[h * dim + j] /= sum;
            }
        }
        return out;
    }

    void run_layer(const std::string& layer, std::size_t window, std::vector<Row>& x) const {
        const auto linear = [&](const std::string& name, const Row& row) {
            return product(layer + name + ".weight", layer + name + ".bias", row);
        };
        std::vector<Row> q, k, v;
        for (std::size_t t = 0; t < x.size(); ++t) {
            const Row normed = norm(layer + "input_layernorm.weight", x[t]);
            q.push_back(
                norm_heads(layer + "self_attn.q_norm.weight", linear("self_attn.q_proj", normed)));
            k.push_back(
                norm_heads(layer + "self_attn.k_norm.weight", linear("self_attn.k_proj", normed)));
            v.push_back(linear("self_attn.v_proj", normed));
            rotate(q.back(), t);
            rotate(k.back(), t);
        }
        for (std::size_t t = 0; t < x.size(); ++t) {
            add(x[t], linear("self_attn.o_proj", attend(q, k, v, t, window)));
            const Row normed = norm(layer + "post_attention_layernorm.weight", x[t]);
            Row gate = linear("mlp.gate_proj", normed);
            const Row up = linear("mlp.up_proj", normed);
            for (std::size_t i = 0; i < gate.size(); ++i) {
                gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
            }
            add(x[t], linear("mlp.down_proj", gate));
        }
    }

    static void add(Row& to, const Row& what) {
        for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] += what[i];
        }
    }

    ModelConfig c_;
    const Tensors& tensors_;
};

} // namespace foregather::model
