// SPDX-License-Identifier: Apache-2.0
// Models, documents and gradients of tests/golden/data, as they lie there. How they were made is
// decided by make_expected.py and make_gradients.py beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <hdf5.h>
#include <nlohmann/json.hpp>

#include <foregather/io/h5.hpp>
#include <foregather/io/h5_data.hpp>

#include "training_model.hpp"

namespace foregather::model::golden {

// The repository is where this file was compiled from; tests run at its root.
inline std::filesystem::path data() {
    return std::filesystem::path(__FILE__).parent_path() / "../../golden/data";
}

inline std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        base::fail("cannot read " + path.string());
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

inline io::Dataset dataset(const io::File& file, const std::string& name) {
    return io::Dataset(
        io::check(H5Dopen2(file.handle(), name.c_str(), H5P_DEFAULT), "open " + name));
}

template <class T>
std::vector<T> array(const io::File& file, const std::string& name) {
    const io::Dataset there = dataset(file, name);
    const base::Shape shape = io::shape_of(there, name);
    std::vector<T> values(static_cast<std::size_t>(base::elements_of(shape)));
    io::read_block(there, io::native_type<T>(), {base::Shape(shape.size(), 0), shape},
                   reinterpret_cast<std::byte*>(values.data()), name);
    return values;
}

// Documents in /tokens and /offsets.
inline Documents documents(const io::File& file) {
    const auto tokens = array<std::int32_t>(file, "tokens");
    const auto offsets = array<std::int64_t>(file, "offsets");
    Documents documents;
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
        documents.emplace_back(tokens.begin() + offsets[d], tokens.begin() + offsets[d + 1]);
    }
    return documents;
}

inline float one_over_targets(const Documents& documents) {
    std::size_t targets = 0;
    for (const auto& document : documents) {
        targets += document.empty() ? 0 : document.size() - 1;
    }
    return static_cast<float>(1.0 / static_cast<double>(targets));
}

// A model, what it is trained on in one step, and what comes of it.
struct Example {
    ModelConfig config;
    Tensors weights;
    Documents documents;
    double loss; // mean over the targets
    Tensors gradients;
};

// The tensors of a file of safetensors, fp32.
inline Tensors safetensors(const std::filesystem::path& path) {
    const std::string bytes = text_of(path);
    std::uint64_t header = 0;
    std::copy_n(bytes.data(), sizeof(header), reinterpret_cast<char*>(&header));
    const nlohmann::json entries = nlohmann::json::parse(bytes.substr(8, header));
    Tensors tensors;
    for (const auto& [name, entry] : entries.items()) {
        if (name != "__metadata__") {
            const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
            tensors[name].resize((end - begin) / sizeof(float));
            std::copy_n(bytes.data() + 8 + header + begin, end - begin,
                        reinterpret_cast<char*>(tensors[name].data()));
        }
    }
    return tensors;
}

// A golden folder: the first step of its training.
inline Example folder(const std::string& name) {
    const std::filesystem::path path = data() / name;
    const io::File expected = io::open_input((path / "expected.h5").string(), "golden file");
    const io::File tokens = io::open_input((path / "tokens.h5").string(), "token file");
    const ModelConfig config = parse_config(text_of(path / "config.json"), name);
    Tensors gradients;
    for (const base::TensorSpec& spec : tensors_of(config)) {
        std::string place = "train/gradient_step_1/" + spec.name;
        std::replace(place.begin(), place.end(), '.', '/');
        gradients[spec.name] = array<float>(expected, place);
    }
    return {config, safetensors(path / "model.safetensors"), documents(tokens),
            array<double>(expected, "train/loss").front(), gradients};
}

// A model of gradients.h5: weights out of a seed.
inline Example small(const std::string& name) {
    const io::File file = io::open_input((data() / "gradients.h5").string(), "golden file");
    const std::string text = io::read_text(dataset(file, name + "/config"), name);
    const ModelConfig config = parse_config(text, name);
    const auto all = array<float>(file, name + "/gradients");
    Tensors gradients = filled(config, 0.0F);
    std::size_t at = 0;
    for (auto& [tensor, values] : gradients) {
        if (at + values.size() <= all.size()) {
            std::copy_n(all.data() + at, values.size(), values.data());
        }
        at += values.size();
    }
    if (at != all.size()) {
        base::fail(name + ": gradients of " + std::to_string(all.size()) + " entries, tensors of " +
                   std::to_string(at));
    }
    return {config, random_tensors(config, 11, 0.8F), documents(file),
            array<double>(file, name + "/loss").front(), gradients};
}

} // namespace foregather::model::golden
