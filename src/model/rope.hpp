// SPDX-License-Identifier: Apache-2.0
// The RoPE settings of a config in both spellings, top level and rope_parameters.
#pragma once

#include <string>
#include <vector>

#include <foregather/model/config.hpp>

#include "json.hpp"

namespace foregather::model {

// The settings of `config` under the "rope" part of the law. Appends one line to `faults` for
// whatever is unknown, wrong or told in two ways, and to `notes` for a default; with faults the
// result is void.
Rope judge_rope(const Json& config, const Json& law, std::vector<std::string>& faults,
                std::vector<std::string>& notes);

} // namespace foregather::model
