// SPDX-License-Identifier: Apache-2.0
// Two buffers in turn, on a stream of its own. Where parts lie is decided elsewhere.
#include <foregather/shard/download.hpp>

#include <algorithm>
#include <exception>

namespace foregather::shard {

Download::Download(device::Device& device, base::Bytes staging_bytes) : device_(device) {
    if (device.host_memory()) {
        return;
    }
    stream_ = device.stream("save", device::Priority::normal);
    const base::Elements n = staging_bytes.count / base::size_of(base::DType::f32);
    for (Staging& staging : staging_) {
        staging.memory = {device, std::max<base::Elements>(n, 1), "save staging"};
        staging.filled = device.event();
    }
}

Download::~Download() {
    if (stream_) {
        try {
            stream_->sync();
        } catch (const std::exception&) { // read() has thrown it, or another error is on its way
        }
    }
}

void Download::read(base::View<const float> part, const Use& use) {
    if (!stream_) {
        use(0, part);
        return;
    }
    const auto most = static_cast<std::size_t>(staging_[0].memory.size());
    const auto piece = [&](std::size_t at) {
        return part.subspan(at, std::min(most, part.size() - at));
    };
    const auto fetch = [&](std::size_t at, const Staging& to) {
        const base::View<const float> from = piece(at);
        device_.copy_out(from, to.memory.first(std::ssize(from)), *stream_);
        to.filled->record(*stream_);
    };
    if (!part.empty()) {
        fetch(0, staging_[0]);
    }
    std::size_t turn = 0;
    for (std::size_t at = 0; at < part.size(); at += most, turn = 1 - turn) {
        if (at + most < part.size()) {
            fetch(at + most, staging_[1 - turn]); // its values have been used
        }
        staging_[turn].filled->wait_host();
        use(static_cast<base::Elements>(at), staging_[turn].memory.first(std::ssize(piece(at))));
    }
}

} // namespace foregather::shard
