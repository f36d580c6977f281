// SPDX-License-Identifier: Apache-2.0
// What the reductions cost, read off their events once these are past.
#include <foregather/schedule/gradient_reducer.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::schedule {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

} // namespace

void GradientReducer::collect_pass() {
    if (!schedule_ || (collected_ + 1) * per_pass() > number_) {
        base::fail("gradients of pass " + std::to_string(collected_) +
                   " are collected before they are there");
    }
    ++collected_;
    for (; read_ < collected_ * per_pass(); ++read_) {
        const Entry& e = entry(read_);
        if (e.reduced && !e.reduce.end->done()) {
            return; // so no wait_reduced() followed
        }
        read(e);
        if ((read_ + 1) % per_pass() == 0) {
            read_step_wait(e.span.pass);
        }
    }
}

void GradientReducer::read(const Entry& e) {
    if (e.before != nullptr) {
        Span span = e.span;
        span.received = {};
        span.issued_ns = e.wait_issued_ns;
        add_wait(span, e.wait, *e.before->freed);
    }
    if (!e.reduced) {
        return;
    }
    Span span = e.span;
    span.begin_ns = e.reduce.begin->time_ns();
    span.end_ns = e.reduce.end->time_ns();
    spans_.add(span);
    figures_.reductions += e.in_place ? 0 : 1;
    figures_.replica_reductions += e.to_replicas ? 1 : 0;
    figures_.received += span.received;
    figures_.reduce_s += seconds(span.end_ns - span.begin_ns);
    figures_.overlapped_s = std::max(figures_.reduce_s - figures_.exposed_s, 0.0);
}

void GradientReducer::read_step_wait(std::int64_t pass) {
    StepWait& w = step_wait(pass);
    if (!w.enqueued) {
        return;
    }
    Span span;
    span.pass = pass;
    span.sequence = (pass + 1) * per_pass() - 1;
    span.unit = entry((pass + 1) * per_pass() - 1).span.unit; // the last that it waited for
    span.issued_ns = w.issued_ns;
    span.direction = Direction::backward;
    add_wait(span, w.wait, *w.drained);
    w.enqueued = false;
}

// Compute is idle until what it waits for is over; what the stream takes to go on is not counted.
void GradientReducer::add_wait(Span span, const Events& wait, const device::Event& until) {
    span.kind = SpanKind::wait;
    span.begin_ns = wait.begin->time_ns();
    span.end_ns = std::min(wait.end->time_ns(), until.time_ns());
    if (span.end_ns <= span.begin_ns) {
        return;
    }
    spans_.add(span);
    ++figures_.exposed_waits;
    figures_.exposed_s += seconds(span.end_ns - span.begin_ns);
    figures_.overlapped_s = std::max(figures_.reduce_s - figures_.exposed_s, 0.0);
}

} // namespace foregather::schedule
