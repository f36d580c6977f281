// SPDX-License-Identifier: Apache-2.0
// RoPE: which settings are taken, and the tables that they come to. Which keys exist is written in
// the law (config_law.json), shared with the tools.
#include "rope.hpp"

#include <cmath>
#include <numbers>
#include <set>

namespace foregather::model {
namespace {

using Lines = std::vector<std::string>;

const char* const spellings[] = {"rope_scaling", "rope_parameters"};

// The rope type that a settings object names; "" with a fault.
std::string type_in(const std::string& name, const Json& block, const Json& law, Lines& faults) {
    std::set<std::string> named;
    for (const Json& key : law.at("type_keys")) {
        const Json value = value_or_null(block, key);
        if (value.is_string()) {
            named.insert(value.get<std::string>());
        }
    }
    if (named.size() > 1) {
        faults.push_back(name + ": rope_type and type disagree (" + *named.begin() + ", " +
                         *named.rbegin() + ")");
        return "";
    }
    if (!named.empty()) {
        return *named.begin();
    }
    for (const auto& [key, value] : block.items()) {
        if (key != "rope_theta" && !law.at("fixed").contains(key)) {
            faults.push_back(name + ": no rope_type is given");
            return "";
        }
    }
    return "default";
}

void judge_key(const std::string& name, const std::string& key, const Json& value,
               const std::string& type, const Json& law, Lines& faults) {
    const std::string place = name + "." + key + ": ";
    if (law.at("fixed").contains(key)) {
        if (!contains(law.at("fixed").at(key), value)) {
            faults.push_back(place + value.dump() + " is not supported, only " +
                             law.at("fixed").at(key).dump());
        }
    } else if (contains(law.at("type_keys"), key) || contains(law.at("harmless"), key)) {
        return;
    } else if (!contains(law.at("types").at(type).at("used"), key)) {
        faults.push_back(place + "unknown to rope type " + type +
                         ", it might change the mathematics");
    } else if (!is_number(value) || value.get<double>() <= 0) {
        faults.push_back(place + value.dump() + " is not a number above zero");
    }
}

// Checks one settings object on its own; its type, or "" with faults.
std::string judge_block(const std::string& name, const Json& block, const Json& law,
                        Lines& faults) {
    if (!block.is_object()) {
        faults.push_back(name + ": " + block.dump() + " is no object");
        return "";
    }
    std::string type = type_in(name, block, law, faults);
    if (type.empty()) {
        return "";
    }
    if (!law.at("types").contains(type)) {
        faults.push_back(name + ": rope type " + type + " is not supported");
        return "";
    }
    for (const auto& [key, value] : block.items()) {
        judge_key(name, key, value, type, law, faults);
    }
    for (const Json& key : law.at("types").at(type).at("required")) {
        if (!block.contains(key)) {
            faults.push_back(name + "." + key.get<std::string>() + ": missing, and rope type " +
                             type + " needs it");
        }
    }
    const Json low = value_or_null(block, "low_freq_factor");
    const Json high = value_or_null(block, "high_freq_factor");
    if (is_number(low) && is_number(high) && low.get<double>() >= high.get<double>()) {
        faults.push_back(name + ": low_freq_factor " + low.dump() +
                         " is not below high_freq_factor " + high.dump());
    }
    return type;
}

// The numbers of a settings object besides its type and base.
Json numbers_of(const Json& block, const Json& law) {
    Json numbers = Json::object();
    for (const auto& [key, value] : block.items()) {
        if (key != "rope_theta" && !contains(law.at("type_keys"), key) &&
            !law.at("fixed").contains(key)) {
            numbers[key] = value;
        }
    }
    return numbers;
}

// Every place that gives a base must give the same; the default where none does.
double judge_theta(const Json& config, const Json& law, Lines& faults, Lines& notes) {
    Json theta;
    std::string first;
    const auto take = [&](const std::string& place, const Json& given) {
        if (given.is_null()) {
            return;
        }
        if (!is_number(given) || given.get<double>() <= 0) {
            faults.push_back(place + ": " + given.dump() + " is not a number above zero");
        } else if (!theta.is_null() && theta != given) {
            faults.push_back("the spellings of the RoPE settings disagree: " + first + " " +
                             theta.dump() + ", " + place + " " + given.dump());
        } else if (theta.is_null()) {
            theta = given;
            first = place;
        }
    };
    take("rope_theta", value_or_null(config, "rope_theta"));
    for (const std::string spelling : spellings) {
        const Json block = value_or_null(config, spelling);
        if (block.is_object()) {
            take(spelling + ".rope_theta", value_or_null(block, "rope_theta"));
        }
    }
    if (theta.is_null()) {
        theta = law.at("default_theta");
        notes.push_back("rope_theta is absent: the default " + theta.dump() + " is taken");
    }
    return theta.get<double>();
}

Rope numbers_as_rope(const std::string& type, const Json& numbers, double theta) {
    Rope rope;
    rope.theta = theta;
    if (type == "llama3") {
        rope.type = RopeType::llama3;
        rope.factor = numbers.at("factor");
        rope.low_freq_factor = numbers.at("low_freq_factor");
        rope.high_freq_factor = numbers.at("high_freq_factor");
        rope.original_positions = numbers.at("original_max_position_embeddings");
    }
    return rope;
}

} // namespace

Rope judge_rope(const Json& config, const Json& law, Lines& faults, Lines& notes) {
    const std::size_t before = faults.size();
    std::string type = "default";
    Json numbers = Json::object();
    bool told = false;
    for (const std::string spelling : spellings) {
        const Json block = value_or_null(config, spelling);
        std::string this_type = "default";
        if (!block.is_null()) {
            this_type = judge_block(spelling, block, law, faults);
        } else if (!config.contains(spelling) || spelling == "rope_parameters") {
            continue; // a null rope_scaling says "no scaling", a null rope_parameters says nothing
        }
        if (faults.size() > before) {
            continue;
        }
        const Json these = block.is_null() ? Json::object() : numbers_of(block, law);
        if (told && (this_type != type || these != numbers)) {
            faults.push_back("the two spellings of the RoPE settings disagree: rope_scaling " +
                             config.at("rope_scaling").dump() + ", rope_parameters " +
                             config.at("rope_parameters").dump());
        }
        told = true;
        type = this_type;
        numbers = these;
    }
    const double theta = judge_theta(config, law, faults, notes);
    return faults.size() > before ? Rope{} : numbers_as_rope(type, numbers, theta);
}

// In float and in this order, as transformers' rope_init functions compute it: at position 8000 one
// unit in the last place of a frequency already turns an angle by 5e-4.
std::vector<float> rope_frequencies(const Rope& rope, int head_dim) {
    std::vector<float> frequencies;
    for (int j = 0; j < head_dim; j += 2) {
        const float exponent = static_cast<float>(j) / static_cast<float>(head_dim);
        // Powers, sines and cosines in long double are the same code on every x86-64 processor.
        const auto power = static_cast<float>(
            std::pow(static_cast<long double>(rope.theta), static_cast<long double>(exponent)));
        frequencies.push_back(1.0F / power);
    }
    if (rope.type == RopeType::plain) {
        return frequencies;
    }
    // transformers.modeling_rope_utils._compute_llama3_parameters: short waves stay, long ones are
    // stretched by `factor`, those between are blended.
    const auto factor = static_cast<float>(rope.factor);
    const auto longest = static_cast<float>(rope.original_positions / rope.low_freq_factor);
    const auto shortest = static_cast<float>(rope.original_positions / rope.high_freq_factor);
    for (float& frequency : frequencies) {
        const float wave = (1.0F / frequency) * static_cast<float>(2.0 * std::numbers::pi);
        if (wave > longest) {
            frequency /= factor;
        } else if (wave >= shortest) {
            const float smooth = ((1.0F / wave) * static_cast<float>(rope.original_positions) -
                                  static_cast<float>(rope.low_freq_factor)) /
                                 static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
            frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
        }
    }
    return frequencies;
}

RopeTables rope_tables(const Rope& rope, int head_dim, std::int64_t positions) {
    const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
    RopeTables tables;
    tables.cosines.reserve(static_cast<std::size_t>(positions) * frequencies.size());
    tables.sines.reserve(tables.cosines.capacity());
    for (std::int64_t position = 0; position < positions; ++position) {
        for (const float frequency : frequencies) {
            const auto angle = static_cast<long double>(static_cast<float>(position) * frequency);
            tables.cosines.push_back(static_cast<float>(std::cos(angle)));
            tables.sines.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    return tables;
}

} // namespace foregather::model
