// SPDX-License-Identifier: Apache-2.0
// First and last passes.
#include <foregather/schedule/span.hpp>

namespace foregather::schedule {

void SpanStore::add(const Span& span) {
    if (span.pass < first_) {
        early_.push_back(span);
        return;
    }
    if (last_ == 0) {
        return;
    }
    late_.push_back(span);
    while (late_.front().pass <= span.pass - last_) {
        late_.pop_front();
    }
}

std::vector<Span> SpanStore::all() const {
    std::vector<Span> spans = early_;
    spans.insert(spans.end(), late_.begin(), late_.end());
    return spans;
}

} // namespace foregather::schedule
