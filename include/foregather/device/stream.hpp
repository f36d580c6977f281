// SPDX-License-Identifier: Apache-2.0
// Streams and events, the same words on every kind of device: a stream runs what is enqueued on it
// in order; an event marks a point of a stream, with its time.
#pragma once

#include <cstdint>
#include <string>

namespace foregather::device {

class Stream;

// A point in a stream. Until it is first recorded it counts as done, but has no time.
class Event {
public:
    virtual ~Event() = default;
    // Enqueues: the event is done when all that was enqueued on `stream` before is. Does not block.
    virtual void record(Stream& stream) = 0;
    // Has the latest record been reached? Does not block.
    virtual bool done() const = 0;
    // Blocks the calling thread, sleeping, until the latest record is reached. Throws what a stream
    // of the device has thrown, if one has failed.
    virtual void wait_host() const = 0;
    // When the latest record was reached, on the clock of Device::now_ns(). Does not block. Throws
    // Error(failed) if that has not happened: done() tells, but not whether it was ever recorded.
    virtual std::int64_t time_ns() const = 0;
};

// An in-order queue. Enqueuing never blocks; nothing here is thread-safe for two enqueuing threads.
class Stream {
public:
    explicit Stream(std::string name) : name_(std::move(name)) {}
    virtual ~Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Enqueues: what follows on this stream starts when the record of `event` that is the latest
    // now is reached. The event must live until then.
    virtual void wait(const Event& event) = 0;
    // Blocks the calling thread until the queue is empty. Throws what the stream has thrown.
    virtual void sync() = 0;

    const std::string& name() const { return name_; }

private:
    std::string name_;
};

} // namespace foregather::device
