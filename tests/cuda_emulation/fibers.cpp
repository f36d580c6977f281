// SPDX-License-Identifier: Apache-2.0
// The scheduler of an emulated block. Warps run one at a time, each up to the block's next barrier;
// within a warp each lane runs up to the warp's next operation. So every switch is at a place where
// the program orders threads, and what it leaves unordered follows Order alone.
#include "fibers.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <random>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include <foregather/base/error.hpp>

#include "block_memory.hpp"
#include "stacks.hpp"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace foregather::emulation {
namespace {

namespace fc = boost::context::detail;

struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes, zeros;

    void run() const {
        std::memcpy(to, from, bytes);
        std::memset(to + bytes, 0, zeros);
    }
};

enum class State { ready, at_block, at_warp, done };

struct Fiber {
    fc::fcontext_t context = nullptr;
    State state = State::ready;
    uint3 index{};
    const char* operation = "";
    unsigned mask = 0;
    Where where{};
    unsigned calls = 0; // of exchange()
    void* fake_stack = nullptr;
    Stack stack{};
    std::vector<Copy> copies; // begun and not waited for
};

struct Warp {
    int first = 0, lanes = 0;
    std::uint64_t brought[2][warp_lanes] = {}; // a lane is at most one operation ahead of another
};

std::string text_of(const Where& where) {
    const std::string file = where.file_name();
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

bool same(const Where& a, const Where& b) {
    return a.line() == b.line() && a.column() == b.column() &&
           std::strcmp(a.file_name(), b.file_name()) == 0;
}

class Runner {
public:
    Runner(const Grid& grid, Order order, const std::function<void()>& thread);

    void run();
    void wait(State state);
    const std::uint64_t* exchange(const char* operation, unsigned mask, std::uint64_t value,
                                  Where where);
    void sync(Where where);
    void copy(const Copy& copy);
    void finish_copies();
    BlockMemory& memory() { return memory_; }

private:
    static void enter(fc::transfer_t from);
    void run_block(uint3 block);
    void start();
    void resume(Fiber& fiber);
    void run_warp(Warp& warp);
    bool release_block();
    void release_warp(const Warp& warp);
    void arrange(std::vector<int>& order);
    std::string name_of(const Fiber& fiber) const;
    std::string text_of_state(const Fiber& fiber) const;
    [[noreturn]] void report(const std::string& what) const;
    Warp& warp_of(const Fiber& fiber) {
        return warps_[static_cast<std::size_t>(&fiber - fibers_.data()) / warp_lanes];
    }

    const Grid& grid_;
    Order order_;
    const std::function<void()>& thread_;
    std::mt19937 random_{1};
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    BlockMemory memory_;
    uint3 block_{};
    fc::fcontext_t scheduler_ = nullptr;
    Stack scheduler_stack_{};
    void* scheduler_fake_ = nullptr;
    Fiber* running_ = nullptr;
    std::exception_ptr failure_;
};

thread_local Runner* runner = nullptr;

Runner& inside() {
    if (runner == nullptr) {
        base::fail("a device function was called outside of a kernel");
    }
    return *runner;
}

Runner::Runner(const Grid& grid, Order order, const std::function<void()>& thread)
    : grid_(grid), order_(order), thread_(thread),
      fibers_(std::size_t{grid.threads.x} * grid.threads.y * grid.threads.z),
      warps_((fibers_.size() + warp_lanes - 1) / warp_lanes), memory_(grid.shared_bytes) {
    constexpr std::size_t most_threads = 1024; // of a block, CUDA's limit
    if (fibers_.empty() || fibers_.size() > most_threads) {
        base::fail("kernel " + grid.name + ": a block of " + std::to_string(fibers_.size()) +
                   " threads");
    }
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
        const auto at = static_cast<unsigned>(i);
        fibers_[i].index = {at % grid.threads.x, at / grid.threads.x % grid.threads.y,
                            at / grid.threads.x / grid.threads.y};
        fibers_[i].stack = stack_of(i);
    }
    for (std::size_t w = 0; w < warps_.size(); ++w) {
        warps_[w].first = static_cast<int>(w) * warp_lanes;
        warps_[w].lanes = std::min(warp_lanes, static_cast<int>(fibers_.size()) - warps_[w].first);
    }
}

void Runner::run() {
    blockDim = grid_.threads;
    gridDim = grid_.blocks;
    for (unsigned z = 0; z < grid_.blocks.z; ++z) {
        for (unsigned y = 0; y < grid_.blocks.y; ++y) {
            for (unsigned x = 0; x < grid_.blocks.x; ++x) {
                run_block({x, y, z});
            }
        }
    }
}

void Runner::run_block(uint3 block) {
    block_ = block;
    blockIdx = block;
    memory_.begin_block();
    start();
    std::vector<int> order(warps_.size());
    do {
        arrange(order);
        for (const int w : order) {
            run_warp(warps_[static_cast<std::size_t>(w)]);
        }
    } while (release_block());
}

void Runner::start() {
    for (Fiber& fiber : fibers_) {
        forget(fiber.stack); // what an aborted run left there
        fiber.context = fc::make_fcontext(fiber.stack.bottom + fiber.stack.bytes, fiber.stack.bytes,
                                          &Runner::enter);
        fiber.state = State::ready;
        fiber.calls = 0;
        fiber.copies.clear();
        fiber.fake_stack = nullptr;
    }
}

void Runner::enter(fc::transfer_t from) {
    Runner& self = *static_cast<Runner*>(from.data);
    end_switch(nullptr, &self.scheduler_stack_);
    self.scheduler_ = from.fctx;
    try {
        self.thread_();
    } catch (...) {
        self.failure_ = std::current_exception();
    }
    self.running_->state = State::done;
    begin_switch(nullptr, self.scheduler_stack_);
    fc::jump_fcontext(self.scheduler_, nullptr);
    std::abort(); // a finished thread is never resumed
}

void Runner::resume(Fiber& fiber) {
    running_ = &fiber;
    threadIdx = fiber.index;
    begin_switch(&scheduler_fake_, fiber.stack);
    const fc::transfer_t back = fc::jump_fcontext(fiber.context, this);
    end_switch(scheduler_fake_, nullptr);
    fiber.context = back.fctx;
    running_ = nullptr;
    if (failure_) {
        std::rethrow_exception(std::exchange(failure_, nullptr));
    }
}

void Runner::wait(State state) {
    Fiber& self = *running_;
    self.state = state;
    begin_switch(&self.fake_stack, scheduler_stack_);
    const fc::transfer_t from = fc::jump_fcontext(scheduler_, nullptr);
    end_switch(self.fake_stack, nullptr);
    scheduler_ = from.fctx;
}

// Until all lanes are at the block's barrier, or done.
void Runner::run_warp(Warp& warp) {
    std::vector<int> order(static_cast<std::size_t>(warp.lanes));
    const auto lane_at = [&](int lane) -> Fiber& {
        return fibers_[static_cast<std::size_t>(warp.first + lane)];
    };
    for (;;) {
        arrange(order);
        for (const int lane : order) {
            if (lane_at(lane).state == State::ready) {
                resume(lane_at(lane));
            }
        }
        const State first = lane_at(0).state;
        for (int lane = 1; lane < warp.lanes; ++lane) {
            if (lane_at(lane).state != first) {
                report("lanes diverge: " + text_of_state(lane_at(0)) + ", " +
                       text_of_state(lane_at(lane)));
            }
        }
        if (first != State::at_warp) {
            return;
        }
        release_warp(warp);
    }
}

void Runner::release_warp(const Warp& warp) {
    const Fiber& first = fibers_[static_cast<std::size_t>(warp.first)];
    for (int lane = 0; lane < warp.lanes; ++lane) {
        Fiber& fiber = fibers_[static_cast<std::size_t>(warp.first + lane)];
        if (!same(fiber.where, first.where) || std::strcmp(fiber.operation, first.operation) != 0) {
            report("lanes diverge: " + text_of_state(first) + ", " + text_of_state(fiber));
        }
    }
    for (int lane = 0; lane < warp.lanes; ++lane) {
        fibers_[static_cast<std::size_t>(warp.first + lane)].state = State::ready;
    }
}

// False where all threads are done.
bool Runner::release_block() {
    const Fiber& first = fibers_.front();
    for (const Fiber& fiber : fibers_) {
        if (fiber.state != first.state ||
            (first.state == State::at_block && !same(fiber.where, first.where))) {
            report("divergent barrier: " + text_of_state(first) + ", " + text_of_state(fiber));
        }
    }
    if (first.state == State::done) {
        return false;
    }
    for (Fiber& fiber : fibers_) {
        fiber.state = State::ready;
    }
    return true;
}

void Runner::arrange(std::vector<int>& order) {
    std::iota(order.begin(), order.end(), 0);
    if (order_ == Order::descending) {
        std::reverse(order.begin(), order.end());
    } else if (order_ == Order::shuffled) {
        std::shuffle(order.begin(), order.end(), random_);
    }
}

const std::uint64_t* Runner::exchange(const char* operation, unsigned mask, std::uint64_t value,
                                      Where where) {
    Fiber& self = *running_;
    Warp& warp = warp_of(self);
    const unsigned whole =
        warp.lanes == warp_lanes ? 0xFFFFFFFFU : (1U << static_cast<unsigned>(warp.lanes)) - 1;
    self.operation = operation;
    self.mask = mask;
    self.where = where;
    if ((mask & whole) != whole) {
        report("partial mask: " + name_of(self) + " names only some of its warp's lanes in " +
               operation + " at " + text_of(where));
    }
    std::uint64_t* brought = warp.brought[self.calls++ % 2];
    brought[static_cast<int>(&self - fibers_.data()) - warp.first] = value;
    wait(State::at_warp);
    return brought;
}

void Runner::sync(Where where) {
    running_->where = where;
    wait(State::at_block);
}

// A device may copy at any time until the copy is waited for: at once in one order of threads, as
// late as it may in the others.
void Runner::copy(const Copy& copy) {
    if (order_ == Order::ascending) {
        copy.run();
    } else {
        running_->copies.push_back(copy);
    }
}

void Runner::finish_copies() {
    for (const Copy& copy : running_->copies) {
        copy.run();
    }
    running_->copies.clear();
}

std::string Runner::name_of(const Fiber& fiber) const {
    return "thread (" + std::to_string(fiber.index.x) + ", " + std::to_string(fiber.index.y) +
           ", " + std::to_string(fiber.index.z) + ")";
}

std::string Runner::text_of_state(const Fiber& fiber) const {
    switch (fiber.state) {
    case State::done:
        return name_of(fiber) + " has exited";
    case State::at_block:
        return name_of(fiber) + " is at the barrier at " + text_of(fiber.where);
    case State::at_warp:
        return name_of(fiber) + " is in " + fiber.operation + " at " + text_of(fiber.where);
    default:
        return name_of(fiber) + " has not begun";
    }
}

void Runner::report(const std::string& what) const {
    base::fail("kernel " + grid_.name + ", block (" + std::to_string(block_.x) + ", " +
               std::to_string(block_.y) + ", " + std::to_string(block_.z) + "): " + what);
}

} // namespace

Order order_of_environment() {
    const char* text = std::getenv("FOREGATHER_EMULATION_ORDER");
    const std::string order = text == nullptr ? "0" : text;
    if (order != "0" && order != "1" && order != "2") {
        base::fail("FOREGATHER_EMULATION_ORDER is " + order + ": 0, 1 or 2 are known");
    }
    return static_cast<Order>(order[0] - '0');
}

void run_grid(const Grid& grid, Order order, const std::function<void()>& thread) {
    struct Current {
        explicit Current(Runner* now) : before(std::exchange(runner, now)) {}
        ~Current() { runner = before; }
        Runner* before;
    };
    if (runner != nullptr) {
        base::fail("kernel " + grid.name + " is launched from inside a kernel");
    }
    Runner self(grid, order, thread);
    const Current current(&self);
    self.run();
}

void sync_block(Where where) { inside().sync(where); }

const std::uint64_t* exchange(const char* operation, unsigned mask, std::uint64_t value,
                              Where where) {
    return inside().exchange(operation, mask, value, where);
}

void begin_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
    inside().copy({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, zeros});
}
void finish_copies() { inside().finish_copies(); }

std::byte* dynamic_memory() { return inside().memory().dynamic(); }
std::byte* block_memory(const void* key, std::size_t bytes) {
    return inside().memory().keyed(key, bytes);
}

} // namespace foregather::emulation
