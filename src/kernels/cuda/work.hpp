// SPDX-License-Identifier: Apache-2.0
// What a launch says about itself: how its threads lie, which memory it touches, how much it
// computes. It launches nothing: launch.cuh does, in one version for devices and one for tests.
#pragma once

#include <cstddef>
#include <initializer_list>

#include <vector_types.h>

#include <foregather/base/view.hpp>

namespace foregather::kernels {

struct Shape {
    dim3 grid, block;
    std::size_t shared_bytes = 0; // dynamic shared memory of a block
};

// Device memory that a kernel reads, or may write (and read).
struct Touch {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool written = false;
};

template <class T>
Touch reads(const T* data, base::Elements n) {
    return {data, static_cast<std::size_t>(n) * sizeof(T), false};
}
template <class T>
Touch writes(T* data, base::Elements n) {
    return {data, static_cast<std::size_t>(n) * sizeof(T), true};
}
template <class T>
Touch reads(base::View<T> view) {
    return {view.data(), view.size_bytes(), false};
}
template <class T>
Touch writes(base::View<T> view) {
    return {view.data(), view.size_bytes(), true};
}
inline Touch reads(const base::ConstSlab& slab) {
    return {slab.data, static_cast<std::size_t>(slab.bytes().count), false};
}
inline Touch writes(const base::Slab& slab) {
    return {slab.data, static_cast<std::size_t>(slab.bytes().count), true};
}

// Built in the call of launch(), whose list of touches lives as long as that call.
struct Work {
    std::initializer_list<Touch> touches; // exactly what may be touched; empty ranges count nothing
    double flops = 0;                     // a multiply and an add are two

    // Bytes that move to or from memory if each touched byte does so once.
    double bytes() const {
        double sum = 0;
        for (const Touch& touch : touches) {
            sum += static_cast<double>(touch.bytes);
        }
        return sum;
    }
};

} // namespace foregather::kernels
