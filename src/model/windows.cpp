// SPDX-License-Identifier: Apache-2.0
// Sliding windows by layer, as transformers' config classes of Mistral, Qwen2 and Qwen3 decide
// them. How a window is applied is decided by attention.
#include "windows.hpp"

#include <algorithm>

namespace foregather::model {
namespace {

const char* const full = "full_attention";
const char* const sliding = "sliding_attention";

bool is_kind(const Json& value) { return value == full || value == sliding; }

void judge_layer_types(const Json& config, std::vector<std::string>& faults) {
    const Json kinds = value_or_null(config, "layer_types");
    if (kinds.is_null()) {
        return;
    }
    const Json layers = value_or_null(config, "num_hidden_layers");
    const Json window = value_or_null(config, "sliding_window");
    const Json used = value_or_null(config, "use_sliding_window");
    if (!kinds.is_array() || !std::all_of(kinds.begin(), kinds.end(), is_kind)) {
        faults.push_back("layer_types: " + kinds.dump() + " is no list of \"" + full + "\" and \"" +
                         sliding + "\"");
    } else if (layers != kinds.size()) {
        faults.push_back("layer_types: " + std::to_string(kinds.size()) +
                         " entries, num_hidden_layers is " + layers.dump());
    } else if (contains(kinds, sliding) && (window.is_null() || used != true)) {
        faults.push_back("layer_types: names sliding_attention, but there is no window "
                         "(use_sliding_window " +
                         used.dump() + ", sliding_window " + window.dump() + ")");
    }
}

} // namespace

void judge_windows(const Json& config, const std::string& rule, std::vector<std::string>& faults) {
    if (rule == "none") {
        return;
    }
    const Json window = value_or_null(config, "sliding_window");
    if (!window.is_null() && !is_count(window)) {
        faults.push_back("sliding_window: " + window.dump() +
                         " is neither null nor a positive whole number of 32 bits");
    }
    if (rule == "every_layer") {
        return;
    }
    const Json first = value_or_null(config, "max_window_layers");
    if (!(first.is_number_integer() && first == 0) && !is_count(first)) {
        faults.push_back("max_window_layers: " + first.dump() +
                         " is not a whole number of zero or more");
    }
    judge_layer_types(config, faults);
}

std::vector<std::int64_t> windows_of(const Json& config, const std::string& rule) {
    std::vector<std::int64_t> windows(config.at("num_hidden_layers").get<std::size_t>(), 0);
    const Json window = value_or_null(config, "sliding_window");
    const bool by_layer = rule == "by_layer";
    if (rule == "none" || window.is_null() ||
        (by_layer && config.at("use_sliding_window") == false)) {
        return windows;
    }
    const Json kinds = value_or_null(config, "layer_types");
    for (std::size_t layer = 0; layer < windows.size(); ++layer) {
        const bool slides = kinds.is_null() ? layer >= config.value("max_window_layers", 0U)
                                            : kinds.at(layer) == sliding;
        if (!by_layer || slides) {
            windows[layer] = window.get<std::int64_t>();
        }
    }
    return windows;
}

} // namespace foregather::model
