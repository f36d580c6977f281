// SPDX-License-Identifier: Apache-2.0
// A sum of parts, element by element, in fp32 and in the order in which they are added. Who adds
// what is others' business.
#pragma once

#include <memory>

#include <foregather/base/view.hpp>

namespace foregather::comm {

class Sum {
public:
    explicit Sum(base::Elements most); // of a part

    void clear() { terms_ = 0; }
    // Parts of fp32 or bf16, all of one length up to the next clear(). The first is taken as it is.
    void add(base::ConstSlab part);
    // As long as the parts, at least one; bf16 is rounded to nearest, ties to even.
    void store(base::Slab result) const;

private:
    int terms_ = 0;
    std::unique_ptr<float[]> sum_, term_; // not touched before they are used
};

} // namespace foregather::comm
