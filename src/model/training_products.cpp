// SPDX-License-Identifier: Apache-2.0
// The products of a training pass, listed before it. What a layer multiplies is decided in
// layer.cpp and layer_backward.cpp.
#include <algorithm>

#include <foregather/model/training.hpp>
#include <foregather/model/transformer.hpp>

namespace foregather::model {

using kernels::Into, kernels::Product, kernels::ProductShape;

std::vector<ProductShape> TrainableTransformer::products() const {
    const ModelConfig& c = config_;
    std::vector<ProductShape> products = products_of(
        c, chain_,
        {limits_.tokens, limits_.document, limits_.weights, HeadWants{}, limits_.row_multiple});
    const auto list = [&](const ProductShape& shape) {
        if (std::find(products.begin(), products.end(), shape) == products.end()) {
            products.push_back(shape);
        }
    };
    // What y = x w^T passes back; weights' gradients are set.
    const auto passed_back = [&](base::Elements in, base::Elements out, Into into,
                                 bool logits = false) {
        ProductShape shape{limits_.tokens, in, out, limits_.weights, false, into, logits};
        shape.product = Product::input_gradient;
        list(shape);
        shape.product = Product::weight_gradient;
        shape.into = Into::overwrite;
        list(shape);
    };
    const base::Elements query = base::Elements{c.heads} * c.head_dim;
    const base::Elements key = base::Elements{c.kv_heads} * c.head_dim;
    passed_back(c.ffn, c.width, Into::overwrite);
    passed_back(c.width, c.ffn, Into::overwrite);
    passed_back(c.width, c.ffn, Into::add);
    passed_back(query, c.width, Into::overwrite);
    passed_back(c.width, query, Into::overwrite);
    passed_back(c.width, key, Into::add);
    for (const ChainUse& use : chain_.uses) {
        if (use.role == Role::head) {
            const auto& unit = chain_.units[static_cast<std::size_t>(use.unit)];
            passed_back(c.width, unit.parts.front().rows, Into::overwrite, true);
        }
    }
    return products;
}

} // namespace foregather::model
