// SPDX-License-Identifier: Apache-2.0
// The keys of a config that say which layers see a sliding window only. `rule` is the family's
// entry "windows" in the law: "none", "every_layer" or "by_layer".
#pragma once

#include <string>
#include <vector>

#include "json.hpp"

namespace foregather::model {

// Appends one line to `faults` for each of these keys that is wrong or does not fit the others.
void judge_windows(const Json& config, const std::string& rule, std::vector<std::string>& faults);

// [L] keys that a query of each layer sees, itself included; 0: all. The config has been judged.
std::vector<std::int64_t> windows_of(const Json& config, const std::string& rule);

} // namespace foregather::model
