// SPDX-License-Identifier: Apache-2.0
// What host kernels and host communicators need beyond Stream: to enqueue a closure, and to spread
// fixed blocks of one over the stream's threads. Code for other devices never sees this header.
#pragma once

#include <functional>

#include <foregather/device/stream.hpp>

namespace foregather::device {

class HostStream : public Stream {
public:
    using Stream::Stream;

    // Enqueues; returns at once. What the closure refers to must live until it has run. An
    // exception that it throws ends all streams of the device, and is thrown again to whoever
    // waits.
    virtual void enqueue(std::function<void()> work) = 0;

    // Only from inside a closure that runs on this stream: runs body(block, thread) for each block
    // in [0, blocks), on the stream's threads, and returns when all are done. Which thread takes
    // which block is luck, so a block must compute the same bits on any. thread is in [0,
    // threads()).
    virtual void parallel(std::int64_t blocks,
                          const std::function<void(std::int64_t block, int thread)>& body) = 0;
    virtual int threads() const = 0;
    // Threads that have run at least one block so far: what device.threads came to.
    virtual int threads_seen() const = 0;
};

// The stream as a HostStream; a stream of another kind is a programming error and throws.
HostStream& host_stream(Stream& stream);

} // namespace foregather::device
