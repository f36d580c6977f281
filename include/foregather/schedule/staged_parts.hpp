// SPDX-License-Identifier: Apache-2.0
// Parts of units that lie in host memory on their way to the gathers that read them: the copy of
// the next gather's part is always enqueued before a gather, into the other of two stages. Which
// gather comes next is the Schedule's to say.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/span.hpp>

namespace foregather::schedule {

class StagedParts {
public:
    using Part = std::function<base::ConstSlab(base::UnitId)>;
    // memory [2][n / 2]: each half holds the largest part. `copy`: the stream of the copies.
    struct Stages {
        base::Slab memory{};
        device::Stream* copy = nullptr;
    };
    // `schedule` is at its start, where this keeps a place of its own. All memory and streams must
    // outlive this object.
    StagedParts(const Schedule& schedule, Part part, const Stages& stages, device::Device& device,
                RangeNames names = {});
    // The gathers of another run follow. All copies before must be collected.
    void begin_segment(const Schedule& schedule);

    // What the executor knows of the gathers to come.
    struct Asked {
        std::int64_t pass = 0;                       // in which this happens
        std::function<std::int64_t()> next_sequence; // numbers what is enqueued
        // Has the optimizer been enqueued that the part is to come from? And the event of it that
        // the copy must wait for, or nullptr.
        std::function<bool(const Step&)> may_read;
        std::function<const device::Event*(const Step&)> written;
    };
    // Before the next gather is enqueued on `gather`: enqueues the copies that are missing, up to
    // that of the gather after it if its part may be read, and makes the gather wait for its own.
    // Returns where the part will be then.
    base::ConstSlab take(const Step& step, const Asked& asked, device::Stream& gather);
    // Enqueues the copies that take() would.
    void bring(const Asked& asked);
    // After that gather has been enqueued: its stage is free when it is done.
    void given_back(device::Stream& gather);

    // Gathers taken for so far: take() for the one with this number comes next.
    std::int64_t taken() const { return taken_; }
    // When the part of that gather had arrived; the gather must be done, and few passes old.
    std::int64_t arrived_ns(std::int64_t number);
    // Spans of the copies that were enqueued before `pass`, once each, in order. They are done when
    // the uses of `pass` are, and this throws if not: of copies enqueued before a pass, the next
    // gather's at most is under way, and that gather is for a use of the pass. (Were it for a later
    // one, a whole pass would have found all units in slots: nothing would be gathered any more.)
    void collect(std::int64_t pass, const std::function<void(const Span&)>& add);

private:
    struct Copy {
        Span span;
        std::unique_ptr<device::Event> begin, end;
        bool read = false;
    };
    Copy& copy(std::int64_t number) {
        return copies_[static_cast<std::size_t>(number) % copies_.size()];
    }
    void look_for_next();
    base::Slab stage(std::int64_t number, base::Elements n) const;
    void bring_next(const Asked& asked);
    void read(Copy& copy);

    Schedule ahead_; // behind next_
    Step next_;      // the next gather to copy for
    bool more_ = false;
    Part part_;
    Stages stages_;
    device::Device& device_;
    RangeNames names_;
    std::vector<Copy> copies_; // a ring, by number
    std::array<std::unique_ptr<device::Event>, 2> stage_free_;
    std::int64_t brought_ = 0, taken_ = 0, collected_ = 0;
};

} // namespace foregather::schedule
