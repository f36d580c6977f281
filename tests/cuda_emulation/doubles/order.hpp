// SPDX-License-Identifier: Apache-2.0
// Who touched which bytes when, by vector clocks: it decides whether two operations are ordered,
// and keeps the accesses of one allocation by exact ranges. It knows nothing of CUDA. Tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace foregather::emulation {

// One component per stream, counted in operations; missing ones are 0.
using Clock = std::vector<std::uint64_t>;

void join(Clock& into, const Clock& from);

struct Operation {
    std::string name;
    std::string stream;     // as messages name it
    std::size_t agent = 0;  // component of clocks
    std::uint64_t tick = 0; // its number on the stream, from 1
};
using OperationPointer = std::shared_ptr<const Operation>;

// True if the owner of the clock knows that the operation is over, or comes after it.
bool is_before(const Operation& operation, const Clock& clock);

// The last write and the reads since, of each byte of an allocation.
class AccessMap {
public:
    using Conflict = std::function<void(const Operation& earlier, bool earlier_wrote)>;

    // Notes an access to [begin, end) and tells of each earlier one that conflicts and is not
    // before `clock`. What is before `host` is forgotten: all later operations come after it.
    void access(std::size_t begin, std::size_t end, bool write, const OperationPointer& operation,
                const Clock& clock, const Clock& host, const Conflict& conflict);

    // An operation on [begin, end) that the host does not know to be over, or null.
    OperationPointer pending(std::size_t begin, std::size_t end, const Clock& host) const;

    std::size_t intervals() const { return intervals_.size(); }

private:
    struct Interval {
        std::size_t end = 0;
        OperationPointer write;
        std::vector<OperationPointer> reads;
    };

    void split(std::size_t at);
    void merge(std::size_t begin, std::size_t end);

    std::map<std::size_t, Interval> intervals_; // by begin; bytes in none were never touched
};

} // namespace foregather::emulation
