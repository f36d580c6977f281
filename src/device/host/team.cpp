// SPDX-License-Identifier: Apache-2.0
// One parallel region at a time: blocks are taken from a counter by the caller and its helpers.
#include "worker.hpp"

namespace foregather::device {

Team::Team(int helpers) : took_a_block_(static_cast<std::size_t>(helpers) + 1) {
    for (int i = 0; i < helpers; ++i) {
        helpers_.emplace_back([this, i] { help(i + 1); });
    }
}

Team::~Team() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    begun_.notify_all();
    for (std::thread& helper : helpers_) {
        helper.join();
    }
}

int Team::seen() const {
    int n = 0;
    for (const auto& took : took_a_block_) {
        n += took.load(std::memory_order_relaxed) ? 1 : 0;
    }
    return n;
}

void Team::run(std::int64_t blocks, const std::function<void(std::int64_t, int)>& body) {
    // One block needs no helpers; they are not woken for nothing.
    const int needed = blocks > 1 ? static_cast<int>(helpers_.size()) : 0;
    {
        const std::lock_guard lock(mutex_);
        body_ = &body;
        blocks_ = blocks;
        next_.store(0, std::memory_order_relaxed);
        failure_ = nullptr;
        busy_ = needed;
        region_ += needed > 0 ? 1 : 0;
    }
    if (needed > 0) {
        begun_.notify_all();
    }
    take_blocks(0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return busy_ == 0; });
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

void Team::take_blocks(int thread) {
    try {
        for (std::int64_t b; (b = next_.fetch_add(1, std::memory_order_relaxed)) < blocks_;) {
            took_a_block_[static_cast<std::size_t>(thread)].store(true, std::memory_order_relaxed);
            (*body_)(b, thread);
        }
    } catch (const std::exception&) {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
    }
}

void Team::help(int thread) {
    std::int64_t last_region = 0;
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            begun_.wait(lock, [&] { return stopping_ || region_ != last_region; });
            if (stopping_) {
                return;
            }
            last_region = region_;
        }
        take_blocks(thread);
        const std::lock_guard lock(mutex_);
        if (--busy_ == 0) {
            ended_.notify_one();
        }
    }
}

} // namespace foregather::device
