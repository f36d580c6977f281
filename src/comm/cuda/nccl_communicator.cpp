// SPDX-License-Identifier: Apache-2.0
// The life of an NCCL communicator, and the watch over collectives that run where no host
// thread is.
#include <foregather/comm/nccl_communicator.hpp>

#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include <foregather/device/cuda_stream.hpp>
#include <foregather/mesh/control.hpp>

#include "../roll_call.hpp"
#include "../waiting.hpp"
#include "alarm.hpp"
#include "link.hpp"
#include "nccl.hpp"

namespace foregather::comm {
namespace {

class NcclMemory final : public device::Memory {
public:
    explicit NcclMemory(base::Bytes size) : size_(size) {
        const auto n = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
        const ncclResult_t rc = nccl().allocate(&data_, n);
        const char* words = rc == ncclSuccess ? "" : nccl().last_error(nullptr);
        if (rc == ncclUnhandledCudaError && std::strstr(words, "out of memory") != nullptr) {
            throw std::bad_alloc();
        }
        nccl().check(rc, "allocate " + std::to_string(n) + " bytes");
    }
    ~NcclMemory() override {
        const ncclResult_t rc = nccl().release(data_);
        if (rc != ncclSuccess && std::uncaught_exceptions() == 0) { // else the cause will be told
            std::fprintf(stderr, "foregather: NCCL failed to free %lld bytes: %s\n",
                         static_cast<long long>(size_.count), nccl().error_string(rc));
        }
    }
    NcclMemory(const NcclMemory&) = delete;
    NcclMemory& operator=(const NcclMemory&) = delete;
    std::byte* data() const override { return static_cast<std::byte*>(data_); }
    base::Bytes size() const override { return size_; }

private:
    void* data_ = nullptr;
    base::Bytes size_;
};

constexpr std::chrono::microseconds quick{200};

// Of what is summed.
ncclDataType_t nccl_type(base::DType type) {
    return type == base::DType::f32 ? ncclFloat32 : ncclBfloat16;
}

ncclConfig_t config_for(const NcclOptions& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = options.name.c_str();
    return config;
}

class NcclCommunicator final : public Communicator {
public:
    NcclCommunicator(MPI_Comm group, device::Device& device, const NcclOptions& options);
    ~NcclCommunicator() override;

    int rank() const override { return control_.rank(); }
    int size() const override { return control_.size(); }
    std::string name() const override { return "nccl " + nccl_version(); }
    void abort() noexcept override;
    std::unique_ptr<device::Memory> allocate(device::Device& device, base::Bytes size,
                                             const std::string& purpose) override {
        return device.allocate_by([](base::Bytes n) { return std::make_unique<NcclMemory>(n); },
                                  size, purpose);
    }

private:
    // A gather or reduction that has been enqueued and has not been seen to end.
    struct Gather {
        std::string what;
        base::Bytes received;
        std::unique_ptr<device::Event> begin, end;
        std::unique_ptr<Link::Passage> passage;
        Clock::time_point seen_to_begin{};
    };

    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override;
    void do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                           device::Stream& stream) override;
    void do_all_reduce(base::Slab slab, std::string what, device::Stream& stream) override;
    // Enqueues what `call` does on the stream, between events, and keeps it in sight.
    using Call = std::function<ncclResult_t(cudaStream_t)>;
    void watched(std::string what, base::Bytes received, device::Stream& stream, const Call& call);
    // Outlives the communicator where setting up fails: the gather may be under way then.
    struct FirstGather {
        device::Buffer<float> shard, full;
        std::unique_ptr<device::Stream> stream;
        std::unique_ptr<device::Event> done;
    };
    void open_connections(const FirstGather& first);
    void drain(const FirstGather& first) const;
    // Waits until NCCL has done what it was asked for and not yet answered. Throws if it failed.
    void settle(ncclResult_t rc, const std::string& attempted);
    void look();
    void look_at_time_limit();
    std::unique_ptr<device::Event> take_event();
    void told(ncclResult_t rc, const char* attempted) const noexcept;

    mesh::Control control_;
    Alarm alarm_; // while setting up
    RollCall roll_call_;
    device::Device& device_;
    NcclOptions options_;
    Link link_;
    int exceptions_at_start_ = std::uncaught_exceptions();
    ncclComm_t comm_ = nullptr;
    std::deque<Gather> running_;
    std::vector<Gather> abandoned_;
    std::vector<std::unique_ptr<device::Event>> spare_;
    std::int64_t ended_ = 0;
    std::shared_ptr<device::Device::Look> look_;
};

NcclCommunicator::NcclCommunicator(MPI_Comm group, device::Device& device,
                                   const NcclOptions& options)
    : control_(group), alarm_(group), roll_call_(group), device_(device), options_(options),
      link_(options.bytes_per_second) {
    ncclUniqueId id{};
    control_.together([&] {
        if (control_.first()) {
            nccl().check(nccl().unique_id(&id), "make the id of a communicator");
        }
    });
    const std::string sent = control_.broadcast(std::string(id.internal, sizeof(id.internal)));
    std::copy(sent.begin(), sent.end(), id.internal);
    FirstGather first;
    try {
        alarm_.together([&] {
            constexpr base::Elements n = 64;
            first.shard = {device_, n, "NCCL's first gather"};
            first.full = {device_, n * size(), "NCCL's first gather"};
            first.stream = device_.stream("first gather", device::Priority::high);
            first.done = device_.event();
            ncclConfig_t config = config_for(options_);
            settle(nccl().init(&comm_, size(), id, rank(), &config),
                   "set up the communicator \"" + options_.name + "\"");
            open_connections(first);
        });
    } catch (const mesh::AgreedError&) {
        abort();
        drain(first);
        throw;
    }
    look_ = std::make_shared<device::Device::Look>([this] { look(); });
    device_.look_while_waiting(look_);
}

// What was enqueued behind the aborted gather ends too.
void NcclCommunicator::drain(const FirstGather& first) const {
    try {
        if (first.stream) {
            first.stream->sync();
        }
    } catch (const base::Error&) { // the failure that is on its way
    }
}

void NcclCommunicator::abort() noexcept {
    // Nobody shall look at them, but what they enqueued on a stream still runs.
    for (; !running_.empty(); running_.pop_front()) {
        abandoned_.push_back(std::move(running_.front()));
    }
    if (comm_ != nullptr) {
        told(nccl().abort(std::exchange(comm_, nullptr)), "abort");
    }
}

void NcclCommunicator::told(ncclResult_t rc, const char* attempted) const noexcept {
    if (rc != ncclSuccess) {
        std::fprintf(stderr, "foregather: %s: NCCL failed to %s the communicator \"%s\": %s\n",
                     own_name().c_str(), attempted, options_.name.c_str(), nccl().error_string(rc));
    }
}

// Buffers and connections are made by the first collective: now, and under the time limit.
void NcclCommunicator::open_connections(const FirstGather& first) {
    settle(nccl().all_gather(first.shard.view().data(), first.full.view().data(),
                             static_cast<std::size_t>(first.shard.size()), ncclFloat32, comm_,
                             device::cuda_stream(*first.stream)),
           "enqueue the first gather");
    first.done->record(*first.stream);
    const bool in_time = wait_until(
        [&] {
            alarm_.look();
            return first.done->done();
        },
        Clock::now(), options_.timeout_s, [] {});
    if (!in_time) {
        base::fail("the first gather has taken longer than comm.timeout");
    }
}

void NcclCommunicator::settle(ncclResult_t rc, const std::string& attempted) {
    const auto settled = [&] {
        if (rc == ncclInProgress) {
            nccl().check(nccl().async_error(comm_, &rc), "tell how far it is", comm_);
        }
        return rc != ncclInProgress;
    };
    // NCCL hands every call to a thread of its own: most are done before a sleep would end.
    for (const auto begin = Clock::now(); !settled() && Clock::now() - begin < quick;) {
        std::this_thread::yield();
    }
    const bool in_time = wait_until(
        [&] {
            alarm_.look();
            return settled();
        },
        Clock::now(), options_.timeout_s, [] {});
    if (!in_time) {
        char limit[32];
        std::snprintf(limit, sizeof(limit), "%g", options_.timeout_s);
        base::fail("NCCL did not " + attempted + " within comm.timeout = " + limit +
                   " s: another rank has failed, or no network leads to it (NCCL_DEBUG=INFO "
                   "tells which one NCCL takes)");
    }
    nccl().check(rc, attempted, comm_);
}

// In order: ended on all ranks, then freed. A rank that fails takes the communicator down, or the
// others would wait for it for ever.
NcclCommunicator::~NcclCommunicator() {
    if (std::uncaught_exceptions() > exceptions_at_start_) {
        abort();
    }
    if (comm_ == nullptr) {
        return;
    }
    try {
        settle(nccl().finalize(comm_), "end the communicator \"" + options_.name + "\"");
        told(nccl().destroy(comm_), "free");
    } catch (const base::Error& error) {
        std::fprintf(stderr, "foregather: %s: %s\n", own_name().c_str(), error.what());
        abort();
    }
}

std::unique_ptr<device::Event> NcclCommunicator::take_event() {
    if (spare_.empty()) {
        return device_.event();
    }
    auto event = std::move(spare_.back());
    spare_.pop_back();
    return event;
}

void NcclCommunicator::watched(std::string what, base::Bytes received, device::Stream& stream,
                               const Call& call) {
    running_.push_back({std::move(what), received, take_event(), take_event(), {}, {}});
    Gather& gather = running_.back();
    try {
        gather.begin->record(stream);
        gather.passage = link_.begin(gather.received, stream);
        settle(call(device::cuda_stream(stream)), "enqueue the " + gather.what);
        link_.end(gather.passage.get(), stream);
        gather.end->record(stream);
    } catch (const base::Error&) { // part of it is enqueued, and uses what it holds
        abandoned_.push_back(std::move(gather));
        running_.pop_back();
        throw;
    }
}

void NcclCommunicator::do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                                     device::Stream& stream) {
    // Bytes are bytes: a gather computes nothing, whatever the type.
    watched(std::move(what), full.bytes() - shard.bytes(), stream, [&](cudaStream_t on) {
        return nccl().all_gather(shard.data, full.data,
                                 static_cast<std::size_t>(shard.bytes().count), ncclUint8, comm_,
                                 on);
    });
}

void NcclCommunicator::do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                                         device::Stream& stream) {
    watched(std::move(what), full.bytes() - shard.bytes(), stream, [&](cudaStream_t on) {
        return nccl().reduce_scatter(full.data, shard.data, static_cast<std::size_t>(shard.n),
                                     nccl_type(shard.type), ncclSum, comm_, on);
    });
}

void NcclCommunicator::do_all_reduce(base::Slab slab, std::string what, device::Stream& stream) {
    // What a reduce-scatter and an all-gather bring: NCCL's own way is not told.
    const base::Bytes received{2 * (slab.bytes().count - slab.bytes().count / size())};
    watched(std::move(what), received, stream, [&](cudaStream_t on) {
        return nccl().all_reduce(slab.data, slab.data, static_cast<std::size_t>(slab.n),
                                 nccl_type(slab.type), ncclSum, comm_, on);
    });
}

// While the host waits: what has ended, NCCL's own errors, questions, and what takes too long.
void NcclCommunicator::look() {
    if (comm_ == nullptr) { // aborted
        return;
    }
    while (!running_.empty() && running_.front().end->done()) {
        Gather& done = running_.front();
        count_gather(done.received,
                     static_cast<double>(done.end->time_ns() - done.begin->time_ns()) * 1e-9);
        spare_.push_back(std::move(done.begin));
        spare_.push_back(std::move(done.end));
        running_.pop_front();
        ++ended_;
    }
    ncclResult_t rc = ncclSuccess;
    try {
        nccl().check(nccl().async_error(comm_, &rc), "tell its errors", comm_);
        if (rc != ncclInProgress) {
            nccl().check(rc, running_.empty() ? "go on" : "run the " + running_.front().what,
                         comm_);
        }
    } catch (const base::Error&) {
        abort(); // or streams would wait for ever for a gather that cannot end
        throw;
    }
    look_at_time_limit();
}

void NcclCommunicator::look_at_time_limit() {
    const bool in_one = !running_.empty() && running_.front().begin->done();
    roll_call_.answer(ended_ + (in_one ? 1 : 0));
    if (!in_one) {
        return;
    }
    Gather& gather = running_.front();
    const auto now = Clock::now();
    if (gather.seen_to_begin == Clock::time_point{}) {
        gather.seen_to_begin = now;
    }
    const Link::Duration waited = now - gather.seen_to_begin;
    if (waited - link_.time(gather.received) > Link::Duration(options_.timeout_s)) {
        const std::string missing = roll_call_.missing(ended_ + 1);
        give_up(gather.what, options_.timeout_s, missing, roll_call_.first_to_tell());
    }
}

} // namespace

std::unique_ptr<Communicator> make_nccl_communicator(MPI_Comm group, device::Device& device,
                                                     const NcclOptions& options) {
    return std::make_unique<NcclCommunicator>(group, device, options);
}

} // namespace foregather::comm
