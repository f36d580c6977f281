// SPDX-License-Identifier: Apache-2.0
// The levels of core_levels as numbers, so that they can be compared.
#pragma once

#include <algorithm>
#include <string>

#include <foregather/kernels/host_kernels.hpp>

namespace foregather::kernels {

// Position in core_levels; behind the last for a name that is none of them.
inline int level_of(const std::string& core_level) {
    const auto found = std::find(core_levels.begin(), core_levels.end(), core_level);
    return static_cast<int>(found - core_levels.begin());
}

} // namespace foregather::kernels
