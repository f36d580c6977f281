// SPDX-License-Identifier: Apache-2.0
// Handles of a shared file when an error is on its way: closing waits for every rank, and some may
// never come. Who must not close is decided by the writers.
#pragma once

#include <memory>
#include <vector>

namespace foregather::io {

// Keeps handles that must not be closed here, until the process ends.
template <class Handles>
void keep_open(std::unique_ptr<Handles> handles) {
    static auto* kept = new std::vector<std::unique_ptr<Handles>>; // outlives every destructor
    kept->push_back(std::move(handles));
}

} // namespace foregather::io
