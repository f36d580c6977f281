// SPDX-License-Identifier: Apache-2.0
// What the host's kernels work with: products, loops, scratch, and how rows are spread over a
// stream's threads in blocks. Which kernel cuts what into which blocks is decided by each.
#pragma once

#include <algorithm>
#include <memory>

#include <foregather/device/device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/lanes.hpp>

#include "timed_products.hpp"

namespace foregather::kernels {

// Rows of x that one product takes: fewer would pack the weights too often, more would leave
// threads without work. (On a Zen 4 core oneDNN multiplies as fast at 128 rows as at 1024.)
inline constexpr Elements product_rows = 128;
inline constexpr Elements product_columns = 768;
inline constexpr Elements head_columns = 512; // vocabulary rows whose logits exist at a time

inline constexpr Elements query_block = 64;
inline constexpr Elements key_block = 128;

// bf16 operands are widened in blocks of this many columns and terms of the sum, for a library that
// multiplies fp32 alone.
inline constexpr Elements wide_rows = 128;
inline constexpr Elements wide_columns = 256;
inline constexpr Elements wide_terms = 512;

// A thread's scratch: first logits [product_rows, head_columns], or what attention.cpp keeps of a
// block, or rows of a norm; then widened operands.
inline constexpr Elements block_floats = 2 * product_rows * head_columns;
inline constexpr Elements wide_floats = wide_rows * wide_terms + wide_columns * wide_terms;
inline constexpr Elements scratch_floats = block_floats + wide_floats;
static_assert(base::bytes_of(scratch_floats, base::DType::f32) == host_scratch_bytes);

// Which operand of a product is read with rows and columns exchanged: c = a b^T, a b, a^T b.
enum class Turned { right, none, left };

// A row-major matrix in a slab of fp32 or bf16, from the element `first` on.
struct Operand {
    Operand(ConstSlab slab, Elements first, Elements row_stride)
        : data(slab.data + first * base::size_of(slab.type)), stride(row_stride), type(slab.type) {}

    template <class T>
    Matrix<const T> as() const {
        return {reinterpret_cast<const T*>(data), stride};
    }

    const std::byte* data;
    Elements stride;
    base::DType type;
};

// Shared by all kernels of one device; they run on one stream at a time.
struct HostMeans {
    HostMeans(device::Device& device, int wanted_threads, const ProductChoice& choice);

    TimedProducts products;
    const Lanes& lanes;
    int threads;
    device::Buffer<float> scratch; // [threads, scratch_floats]
};

class HostWork {
protected:
    explicit HostWork(std::shared_ptr<const HostMeans> means)
        : means_(std::move(means)), products_(means_->products), lanes_(means_->lanes) {}
    ~HostWork() = default;

    // c (+)= the product of operands of one type, whatever the library offers; sums are fp32.
    void multiply(Turned turned, ProductSize size, Operand a, Operand b, float beta,
                  Matrix<float> c, int thread) const;
    // Rounds the rows of x where they lie: to fp32 numbers that are bf16, or, packed, to bf16 in
    // the first half of each row. Whoever holds a row works on it alone.
    void round_rows(Floats x, Elements width, bool packed, device::HostStream& host) const;

    // Enqueues body(begin, end, thread) for [0, rows) cut into blocks of `block` rows.
    template <class Body>
    void enqueue_rows(Stream& stream, Elements rows, Elements block, Body body) const {
        device::HostStream& host = checked(stream);
        host.enqueue([&host, rows, block, body] { each_block(host, rows, block, body); });
    }
    // The same from inside what is enqueued.
    template <class Body>
    static void each_block(device::HostStream& host, Elements rows, Elements block,
                           const Body& body) {
        host.parallel(blocks_of(rows, block), [&](std::int64_t b, int thread) {
            body(b * block, std::min(rows, (b + 1) * block), thread);
        });
    }

    static Elements blocks_of(Elements n, Elements block) { return (n + block - 1) / block; }
    // Throws Error(failed) if the stream has more threads than there is scratch for.
    device::HostStream& checked(Stream& stream) const;
    float* scratch_of(int thread) const;
    const std::shared_ptr<const HostMeans>& means() const { return means_; }

private:
    void multiply_widened(Turned turned, ProductSize size, Matrix<const Bf16> a,
                          Matrix<const Bf16> b, float beta, Matrix<float> c, int thread) const;

    std::shared_ptr<const HostMeans> means_;

protected:
    const TimedProducts& products_;
    const Lanes& lanes_;
};

// Throws Error(failed) unless the host can compute with this type of weight: fp32 or bf16.
void require_computable(ConstSlab w, const char* kernel);

} // namespace foregather::kernels
