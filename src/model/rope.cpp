// SPDX-License-Identifier: Apache-2.0
// RoPE: which settings are taken, in both spellings. Which keys exist is written in the law
// (config_law.json), shared with the tools; what they come to is computed in rope_tables.cpp.
#include "rope.hpp"

#include <cmath>
#include <set>

namespace foregather::model {
namespace {

using Lines = std::vector<std::string>;

const char* const spellings[] = {"rope_scaling", "rope_parameters"};

// The rope type that a settings object names, one that is computed; "" with a fault.
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
    if (named.empty()) {
        for (const auto& [key, value] : block.items()) {
            if (key != "rope_theta" && !law.at("fixed").contains(key)) {
                faults.push_back(name + ": no rope_type is given");
                return "";
            }
        }
        return "default";
    }
    const std::string& type = *named.begin();
    if (!law.at("types").contains(type)) {
        faults.push_back(name + ": rope type " + type + " is not supported (" +
                         law.at("refused").value(type, "an unknown type") + ")");
        return "";
    }
    return type;
}

// What is wrong with one setting of a rope type; "" if nothing is.
std::string fault_of(const std::string& key, const Json& value, const std::string& type,
                     const Json& rule) {
    const Json& optional = rule.at("optional");
    const bool required = key == "rope_theta" || contains(rule.at("required"), key);
    if (!required && !optional.contains(key)) {
        return "unknown to rope type " + type + ", it might change the mathematics";
    }
    if (!required && optional.at(key).is_boolean()) {
        return value.is_boolean() ? "" : value.dump() + " is neither true nor false";
    }
    if (value.is_null() && !required && !optional.at(key).is_string()) {
        return ""; // as good as absent
    }
    return is_number(value) && value.get<double>() > 0
               ? ""
               : value.dump() + " is not a number above zero";
}

// The value of a setting where it is given, else its default in the rule.
Json given_or_default(const Json& block, const std::string& key, const Json& rule) {
    const Json value = value_or_null(block, key);
    return value.is_null() ? value_or_null(rule.at("optional"), key) : value;
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
    const Json& rule = law.at("types").at(type);
    for (const auto& [key, value] : block.items()) {
        const std::string place = name + "." + key + ": ";
        if (law.at("fixed").contains(key)) {
            if (!contains(law.at("fixed").at(key), value)) {
                faults.push_back(place + value.dump() + " is not supported, only " +
                                 law.at("fixed").at(key).dump());
            }
        } else if (!contains(law.at("type_keys"), key)) {
            const std::string fault = fault_of(key, value, type, rule);
            if (!fault.empty()) {
                faults.push_back(place + fault);
            }
        }
    }
    for (const Json& key : rule.at("required")) {
        if (!block.contains(key)) {
            faults.push_back(name + "." + key.get<std::string>() + ": missing, and rope type " +
                             type + " needs it");
        }
    }
    if (!rule.at("increasing").empty()) {
        const std::string low = rule.at("increasing").at(0), high = rule.at("increasing").at(1);
        const Json below = given_or_default(block, low, rule);
        const Json above = given_or_default(block, high, rule);
        if (is_number(below) && is_number(above) && below.get<double>() >= above.get<double>()) {
            faults.push_back(name + ": " + low + " " + below.dump() + " is not below " + high +
                             " " + above.dump());
        }
    }
    return type;
}

// The numbers of a settings object besides its type and base, defaults filled in; a default that is
// a word is another key of the config.
Json numbers_of(const std::string& name, const Json& block, const std::string& type,
                const Json& config, const Json& law, Lines& notes) {
    Json numbers = Json::object();
    for (const auto& [key, fallback] : law.at("types").at(type).at("optional").items()) {
        numbers[key] = fallback;
        if (fallback.is_string()) {
            numbers[key] = value_or_null(config, fallback);
            if (!block.contains(key)) {
                notes.push_back(name + "." + key + " is absent: " + fallback.get<std::string>() +
                                ", " + numbers.at(key).dump() + ", is taken");
            }
        }
    }
    for (const auto& [key, value] : block.items()) {
        if (key != "rope_theta" && !contains(law.at("type_keys"), key) &&
            !law.at("fixed").contains(key) && !value.is_null()) {
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

// transformers.modeling_rope_utils._compute_yarn_parameters: the factor that is not given.
double yarn_attention_factor(const Json& numbers, double factor) {
    const auto scaled = [factor](double mscale) {
        return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
    };
    const Json given = numbers.at("attention_factor");
    const Json mscale = numbers.at("mscale"), all_dim = numbers.at("mscale_all_dim");
    if (!given.is_null()) {
        return given.get<double>();
    }
    if (mscale.is_null() || all_dim.is_null()) { // one of the two alone says nothing there either
        return scaled(1.0);
    }
    return scaled(mscale.get<double>()) / scaled(all_dim.get<double>());
}

Rope numbers_as_rope(const std::string& type, const Json& numbers, double theta) {
    Rope rope;
    rope.theta = theta;
    rope.factor = numbers.value("factor", 1.0);
    rope.original_positions = numbers.value("original_max_position_embeddings", 0.0);
    if (type == "linear") {
        rope.type = RopeType::linear;
    } else if (type == "llama3") {
        rope.type = RopeType::llama3;
        rope.low_freq_factor = numbers.at("low_freq_factor");
        rope.high_freq_factor = numbers.at("high_freq_factor");
    } else if (type == "yarn") {
        rope.type = RopeType::yarn;
        rope.beta_fast = numbers.at("beta_fast");
        rope.beta_slow = numbers.at("beta_slow");
        rope.truncate = numbers.at("truncate");
        rope.attention_factor = yarn_attention_factor(numbers, rope.factor);
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
        const Json these = numbers_of(spelling, block.is_null() ? Json::object() : block, this_type,
                                      config, law, notes);
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
    if (type == "yarn" && theta <= 1.0) {
        faults.push_back("rope_theta: " + std::to_string(theta) +
                         " is not above one, and rope type yarn needs that");
    }
    return faults.size() > before ? Rope{} : numbers_as_rope(type, numbers, theta);
}

} // namespace foregather::model
