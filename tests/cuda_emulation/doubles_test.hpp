// SPDX-License-Identifier: Apache-2.0
// What the tests of the test doubles share: a fresh set of devices for each test, and kernels
// written as lambdas. Tests only.
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "doubles/control.hpp"
#include "emulation.hpp"

namespace foregather::emulation {

using Settings = std::map<std::string, std::string>;

// Sets the variables of the emulation and starts it anew; takes them back at the end.
class Emulation {
public:
    explicit Emulation(Settings settings) : settings_(std::move(settings)) {
        settings_.try_emplace("FOREGATHER_EMULATION_GPUS", "1");
        for (const auto& [name, value] : settings_) {
            ::setenv(name.c_str(), value.c_str(), 1);
        }
        restart();
    }
    Emulation() : Emulation(Settings{}) {}
    Emulation(const Emulation&) = delete;
    Emulation& operator=(const Emulation&) = delete;
    ~Emulation() {
        cudaDeviceSynchronize();
        for (const auto& [name, value] : settings_) {
            ::unsetenv(name.c_str());
        }
        restart();
    }

private:
    Settings settings_;
};

inline cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    return stream;
}

inline cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
    return event;
}

inline float* new_floats(std::size_t n) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, n * sizeof(float)), cudaSuccess);
    return static_cast<float*>(data);
}

inline float* new_pinned(std::size_t n) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocHost(&data, n * sizeof(float)), cudaSuccess);
    return static_cast<float*>(data);
}

inline Touch reads(const float* data, std::size_t n) { return {data, n * sizeof(float), false}; }
inline Touch writes(const float* data, std::size_t n) { return {data, n * sizeof(float), true}; }

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

} // namespace foregather::emulation
