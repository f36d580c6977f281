// SPDX-License-Identifier: Apache-2.0
// Vector clocks and the interval map of accesses. It decides order and conflicts alone; who asks
// decides what to say about them. Tests only.
#include "order.hpp"

#include <algorithm>
#include <set>

namespace foregather::emulation {

void join(Clock& into, const Clock& from) {
    into.resize(std::max(into.size(), from.size()), 0);
    for (std::size_t i = 0; i < from.size(); ++i) {
        into[i] = std::max(into[i], from[i]);
    }
}

bool is_before(const Operation& operation, const Clock& clock) {
    return operation.agent < clock.size() && operation.tick <= clock[operation.agent];
}

void AccessMap::split(std::size_t at) {
    auto next = intervals_.upper_bound(at);
    if (next == intervals_.begin()) {
        return;
    }
    auto& [begin, interval] = *std::prev(next);
    if (begin < at && at < interval.end) {
        Interval right = interval;
        interval.end = at;
        intervals_.emplace(at, std::move(right));
    }
}

// Joins alike neighbours in and around [begin, end), and drops those with nothing to remember.
void AccessMap::merge(std::size_t begin, std::size_t end) {
    auto it = intervals_.lower_bound(begin);
    if (it != intervals_.begin()) {
        --it;
    }
    while (it != intervals_.end() && it->first <= end) {
        Interval& interval = it->second;
        if (!interval.write && interval.reads.empty()) {
            it = intervals_.erase(it);
            continue;
        }
        const auto next = std::next(it);
        if (next != intervals_.end() && next->first == interval.end &&
            next->second.write == interval.write && next->second.reads == interval.reads) {
            interval.end = next->second.end;
            intervals_.erase(next);
        } else {
            ++it;
        }
    }
}

void AccessMap::access(std::size_t begin, std::size_t end, bool write,
                       const OperationPointer& operation, const Clock& clock, const Clock& host,
                       const Conflict& conflict) {
    split(begin);
    split(end);
    std::set<const Operation*> told;
    const auto check = [&](const OperationPointer& earlier, bool wrote) {
        if (!is_before(*earlier, clock) && told.insert(earlier.get()).second) {
            conflict(*earlier, wrote);
        }
    };
    std::size_t at = begin;
    for (auto it = intervals_.lower_bound(begin); at < end;) {
        if (it == intervals_.end() || it->first > at) { // bytes that nobody touched
            const std::size_t until = it == intervals_.end() ? end : std::min(end, it->first);
            it = intervals_.emplace(at, Interval{until, nullptr, {}}).first;
        }
        Interval& interval = it->second;
        if (interval.write) {
            check(interval.write, true);
        }
        if (write) {
            for (const auto& read : interval.reads) {
                check(read, false);
            }
            interval.write = operation;
            interval.reads.clear();
        } else {
            if (interval.write && is_before(*interval.write, host)) {
                interval.write = nullptr;
            }
            // A read before this one needs no memory: whoever is after this one is after it too.
            std::erase_if(interval.reads, [&](const auto& r) { return is_before(*r, clock); });
            interval.reads.push_back(operation);
        }
        at = interval.end;
        ++it;
    }
    merge(begin, end);
}

OperationPointer AccessMap::pending(std::size_t begin, std::size_t end, const Clock& host) const {
    auto it = intervals_.upper_bound(begin);
    if (it != intervals_.begin()) {
        --it;
    }
    for (; it != intervals_.end() && it->first < end; ++it) {
        const Interval& interval = it->second;
        if (interval.end <= begin) {
            continue;
        }
        if (interval.write && !is_before(*interval.write, host)) {
            return interval.write;
        }
        for (const auto& read : interval.reads) {
            if (!is_before(*read, host)) {
                return read;
            }
        }
    }
    return nullptr;
}

} // namespace foregather::emulation
