// SPDX-License-Identifier: Apache-2.0
// Strict reading of JSON. What keys mean is decided elsewhere.
#include "json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <foregather/base/error.hpp>

namespace foregather::model {

Json parse_object(const std::string& text, const std::string& origin) {
    std::vector<std::set<std::string>> open; // keys seen in each object that is being read
    std::string twice;
    const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) {
            open.emplace_back();
        } else if (event == Json::parse_event_t::object_end) {
            open.pop_back();
        } else if (event == Json::parse_event_t::key && !open.back().insert(parsed).second) {
            twice = parsed;
        }
        return true;
    };
    Json object;
    try {
        object = Json::parse(text, watch);
    } catch (const Json::exception& error) {
        base::refuse(origin + ": the model's config is not JSON: " + error.what());
    }
    if (!object.is_object()) {
        base::refuse(origin + ": the model's config is no JSON object");
    }
    if (!twice.empty()) {
        base::refuse(origin + ": the key " + twice + " stands twice in the model's config");
    }
    return object;
}

bool is_number(const Json& value) {
    return value.is_number() && std::isfinite(value.get<double>());
}

bool is_count(const Json& value) {
    return value.is_number_integer() && value.get<double>() >= 1.0 &&
           value.get<double>() <= static_cast<double>(std::numeric_limits<std::int32_t>::max());
}

Json value_or_null(const Json& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() ? Json() : *found;
}

bool contains(const Json& list, const Json& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

} // namespace foregather::model
