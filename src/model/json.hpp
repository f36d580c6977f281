// SPDX-License-Identifier: Apache-2.0
// JSON as this room reads it: strictly, and with values shown as the file has them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace foregather::model {

using Json = nlohmann::json;

// Reads one JSON object. Throws Error(refused) naming `origin` for text that is none, and for keys
// that stand twice: which of the two counts is a matter of taste.
Json parse_object(const std::string& text, const std::string& origin);

bool is_number(const Json& value); // finite; true is none
bool is_count(const Json& value);  // a whole number from 1 to 2^31 - 1

// The value under `key`, or null.
Json value_or_null(const Json& object, const std::string& key);

// Whether `list` holds `value`: 1 and 1.0 are the same, 1 and true are not.
bool contains(const Json& list, const Json& value);

} // namespace foregather::model
