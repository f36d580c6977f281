// SPDX-License-Identifier: Apache-2.0
// Versions of the program and of what it is built with, for --version and for results.
#pragma once

#include <string>
#include <vector>

namespace foregather::job {

struct Version {
    std::string name;
    std::string value;
};
std::vector<Version> versions();

} // namespace foregather::job
