// SPDX-License-Identifier: Apache-2.0
// The inputs of --self-test: a model whose answer is known, and documents for it.
#pragma once

#include <string>

namespace foregather::job {

// A model of four tokens in which the next depends on the last alone: one half for the token after
// it, a quarter for the one after that, an eighth for each of the others. Written by one process.
void write_known_model(const std::string& path);
// Documents 0 1 2 3 and 0 0: four tokens to score, together 6 ln 2.
void write_known_documents(const std::string& path);

} // namespace foregather::job
