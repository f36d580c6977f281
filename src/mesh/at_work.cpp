// SPDX-License-Identifier: Apache-2.0
// Medians of the latest hundred of each kind.
#include <foregather/mesh/at_work.hpp>

#include <algorithm>
#include <atomic>

#include <foregather/base/moves.hpp>

namespace foregather::mesh {
namespace {

constexpr std::size_t kept = 101;
constexpr double detail_after_s = 0.3;
// The main thread looks closely now and then; until it has, what it said last is all there is.
constexpr double patience_s = 0.25;

std::atomic<const AtWork*> latest = nullptr;

} // namespace

AtWork::AtWork() { latest.store(this); }

AtWork::~AtWork() {
    const AtWork* own = this;
    latest.compare_exchange_strong(own, nullptr);
}

std::string AtWork::of_process() {
    const AtWork* at_work = latest.load();
    const Work work = at_work != nullptr ? at_work->in_hand() : Work{};
    return work.kind.empty() ? "" : work.name();
}

void AtWork::begin(const std::string& kind, std::int64_t number, double now) {
    base::moved();
    const std::lock_guard lock(mutex_);
    end_locked(now);
    work_ = {kind, number, ""};
    begin_ = now;
    when_slow_.clear();
    told_ = false;
}

void AtWork::end(double now) {
    base::moved();
    const std::lock_guard lock(mutex_);
    end_locked(now);
}

void AtWork::end_locked(double now) {
    if (work_.kind.empty()) {
        return;
    }
    const double seconds = now - begin_;
    if (const auto most = limit(); most && seconds > *most && !told_) {
        over_.push_back(slow_one(seconds, true));
    }
    learn(known_[work_.kind], work_.kind, seconds);
    work_ = {};
}

void AtWork::learn(Known& known, const std::string& kind, double seconds) {
    if (known.seconds.size() < kept) {
        known.seconds.push_back(seconds);
    } else {
        known.seconds[static_cast<std::size_t>(known.times) % kept] = seconds;
    }
    ++known.times;
    if (known.times >= (kind == "save" ? 3 : 10)) {
        std::vector<double> sorted = known.seconds;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        known.median = *middle;
    }
}

std::optional<double> AtWork::limit() const {
    const auto known = known_.find(work_.kind);
    if (known == known_.end() || !known->second.median) {
        return {};
    }
    return std::max(least_s, factor * *known->second.median);
}

void AtWork::doing(const std::string& what, double now) {
    base::moved();
    const std::lock_guard lock(mutex_);
    work_.doing = what;
    if (const auto most = limit(); most && now - begin_ > *most && when_slow_.empty()) {
        when_slow_ = what;
    }
}

bool AtWork::wants_detail(double now) const {
    const std::lock_guard lock(mutex_);
    return !work_.kind.empty() && now - begin_ > detail_after_s;
}

Work AtWork::in_hand() const {
    const std::lock_guard lock(mutex_);
    return work_;
}

SlowWork AtWork::slow_one(double seconds, bool over) const {
    SlowWork slow{work_, seconds, *known_.at(work_.kind).median, over};
    if (!when_slow_.empty()) {
        slow.work.doing = when_slow_;
    }
    return slow;
}

std::optional<SlowWork> AtWork::slow(double now) {
    const std::lock_guard lock(mutex_);
    if (!over_.empty()) {
        const SlowWork slow = over_.front();
        over_.erase(over_.begin());
        return slow;
    }
    const auto most = limit();
    const double seconds = now - begin_;
    if (!most || told_ || seconds <= *most ||
        (when_slow_.empty() && seconds <= *most + patience_s)) {
        return {};
    }
    told_ = true;
    return slow_one(seconds, false);
}

} // namespace foregather::mesh
