// SPDX-License-Identifier: Apache-2.0
// A model and its documents, written as the tools write them.
#include "self_test_files.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <foregather/io/h5.hpp>
#include <foregather/io/h5_data.hpp>

namespace foregather::job {
namespace {

constexpr const char* config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
"hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 2, "vocab_size": 4, "max_position_embeddings": 4096,
"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null, "hidden_act": "silu",
"attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false}
)";

io::Dataset create(const io::File& file, const std::string& name, hid_t type,
                   const base::Shape& shape) {
    const std::vector<hsize_t> extent(shape.begin(), shape.end());
    const std::string what = "create " + name + " of a file of the self-test";
    const io::Space space(io::check(
        shape.empty() ? H5Screate(H5S_SCALAR)
                      : H5Screate_simple(static_cast<int>(shape.size()), extent.data(), nullptr),
        what));
    const io::Plist groups(io::check(H5Pcreate(H5P_LINK_CREATE), what));
    io::check(H5Pset_create_intermediate_group(groups.handle(), 1), what);
    return io::Dataset(io::check(H5Dcreate2(file.handle(), name.c_str(), type, space.handle(),
                                            groups.handle(), H5P_DEFAULT, H5P_DEFAULT),
                                 what));
}

template <class T>
void write(const io::File& file, const std::string& name, const base::Shape& shape,
           const std::vector<T>& values) {
    const io::Dataset dataset = create(file, name, io::native_type<T>(), shape);
    io::write_block(dataset, io::native_type<T>(), {base::Shape(shape.size(), 0), shape},
                    reinterpret_cast<const std::byte*>(values.data()), name);
}

void write_zeros(const io::File& file, const std::string& name, const base::Shape& shape) {
    write(file, name, shape,
          std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1]), 0.0F));
}

void write_layer(const io::File& file, const std::string& layer) {
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
        write(file, layer + name + "/weight", {4}, std::vector<float>(4, 1.0F));
    }
    for (const char* name : {"self_attn/q_proj", "self_attn/o_proj", "mlp/gate_proj", "mlp/up_proj",
                             "mlp/down_proj"}) {
        write_zeros(file, layer + name + "/weight", {4, 4});
    }
    for (const char* name : {"self_attn/k_proj", "self_attn/v_proj"}) {
        write_zeros(file, layer + name + "/weight", {2, 4});
    }
}

} // namespace

void write_known_model(const std::string& path) {
    io::File file = io::create_shared(path, MPI_COMM_SELF);
    io::write_attribute(file.handle(), "format", std::string("foregather.weights"));
    io::write_attribute(file.handle(), "format_version", std::int64_t{1});
    const std::string text = config;
    const io::Type type = io::string_type(text.size());
    {
        const io::Dataset dataset = create(file, "config", type.handle(), {});
        io::check(
            H5Dwrite(dataset.handle(), type.handle(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
            "write the config of the self-test");
    }
    constexpr std::array probability = {0.125, 0.5, 0.25, 0.125}; // of the token so much further
    std::vector<float> embedding(16, 0.0F), head(16);
    for (std::size_t from = 0; from < 4; ++from) {
        embedding[5 * from] = 1000.0F;
        for (std::size_t to = 0; to < 4; ++to) { // the norm makes twice a unit vector
            head[4 * to + from] =
                static_cast<float>(0.5 * std::log(probability[(to + 4 - from) % 4]));
        }
    }
    write(file, "weights/model/embed_tokens/weight", {4, 4}, embedding);
    write(file, "weights/model/norm/weight", {4}, std::vector<float>(4, 1.0F));
    write(file, "weights/lm_head/weight", {4, 4}, head);
    write_layer(file, "weights/model/layers/0/");
    write_layer(file, "weights/model/layers/1/");
    io::close(file, path);
}

void write_known_documents(const std::string& path) {
    io::File file = io::create_shared(path, MPI_COMM_SELF);
    write(file, "tokens", {6}, std::vector<std::int64_t>{0, 1, 2, 3, 0, 0});
    write(file, "offsets", {3}, std::vector<std::int64_t>{0, 4, 6});
    io::close(file, path);
}

} // namespace foregather::job
