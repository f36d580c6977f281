// SPDX-License-Identifier: Apache-2.0
// Each call is one or two non-blocking collectives, waited for with sleeps.
#include <foregather/mesh/control.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>

#include <foregather/base/moves.hpp>

namespace foregather::mesh {

struct Control::State {
    std::mutex mutex; // guards `at`
    AtExchange at;
};

// From coming to an exchange, which counts those of all ranks, to its end.
class Control::Waiting {
public:
    Waiting(State& state, const char* what, bool of_all_ranks) : state_(state) {
        const std::chrono::duration<double> now =
            std::chrono::steady_clock::now().time_since_epoch();
        const std::lock_guard lock(state_.mutex);
        state_.at = {state_.at.number + (of_all_ranks ? 1 : 0), true, now.count(), what};
    }
    ~Waiting() {
        base::moved();
        const std::lock_guard lock(state_.mutex);
        state_.at.waits = false;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    State& state_;
};

Control::Control(MPI_Comm comm)
    : comm_(duplicate(comm, "control")), state_(std::make_unique<State>()) {
    check(MPI_Comm_rank(comm_.handle(), &rank_), "ask for this rank's number");
    check(MPI_Comm_size(comm_.handle(), &size_), "ask for the number of ranks");
}

Control::~Control() = default;

AtExchange Control::at() const {
    const std::lock_guard lock(state_->mutex);
    return state_->at;
}

void Control::exchange(MPI_Request& request, const char* what) const {
    const Waiting waiting(*state_, what, true);
    wait_politely(request, what);
}

std::int64_t Control::broadcast(std::int64_t value) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(&value, 1, MPI_INT64_T, 0, comm_.handle(), &request), "broadcast a number");
    exchange(request, "broadcast a number");
    return value;
}

std::string Control::broadcast(std::string text) const {
    const std::int64_t length = broadcast(static_cast<std::int64_t>(text.size()));
    if (length > std::numeric_limits<int>::max()) {
        base::fail("a text of " + std::to_string(length) + " bytes is too long to broadcast");
    }
    text.resize(static_cast<std::size_t>(length));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, comm_.handle(), &request),
          "broadcast a text");
    exchange(request, "broadcast a text");
    return text;
}

std::vector<std::int64_t> Control::gather(std::int64_t value) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&value, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, comm_.handle(),
                         &request),
          "gather a number from every rank");
    exchange(request, "gather a number from every rank");
    return all;
}

std::vector<double> Control::gather(double value) const {
    std::vector<double> all(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check(
        MPI_Iallgather(&value, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, comm_.handle(), &request),
        "gather a number from every rank");
    exchange(request, "gather a number from every rank");
    return all;
}

std::vector<std::string> Control::gather(const std::string& text) const {
    const auto lengths = gather(static_cast<std::int64_t>(text.size()));
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    if (total > std::numeric_limits<int>::max()) {
        base::fail("texts of " + std::to_string(total) + " bytes are too long to gather");
    }
    std::vector<int> counts(lengths.begin(), lengths.end());
    std::vector<int> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
    std::string joined(static_cast<std::size_t>(total), '\0');
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_CHAR, joined.data(),
                          counts.data(), starts.data(), MPI_CHAR, comm_.handle(), &request),
          "gather a text from every rank");
    exchange(request, "gather a text from every rank");
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        texts.push_back(joined.substr(static_cast<std::size_t>(starts[i]),
                                      static_cast<std::size_t>(counts[i])));
    }
    return texts;
}

std::vector<std::string> Control::gather_to_first(const std::string& bytes) const {
    // One rank after another: rank 0 then holds one message beside the results, whatever their
    // sizes.
    constexpr std::size_t piece = std::size_t{1} << 30;
    constexpr int tag = 1;
    const auto lengths = gather(static_cast<std::int64_t>(bytes.size()));
    std::vector<std::string> all(first() ? static_cast<std::size_t>(size_) : 0);
    const auto move = [&](auto start, std::size_t length) {
        for (std::size_t done = 0; done < length; done += piece) {
            MPI_Request request = MPI_REQUEST_NULL;
            check(start(done, static_cast<int>(std::min(piece, length - done)), &request),
                  "move a rank's rows to rank 0");
            const Waiting waiting(*state_, "move a rank's rows to rank 0", false);
            wait_politely(request, "move a rank's rows to rank 0");
        }
    };
    if (!first()) {
        move(
            [&](std::size_t done, int n, MPI_Request* request) {
                return MPI_Isend(bytes.data() + done, n, MPI_CHAR, 0, tag, comm_.handle(), request);
            },
            bytes.size());
        return all;
    }
    all[0] = bytes;
    for (int r = 1; r < size_; ++r) {
        std::string& text = all[static_cast<std::size_t>(r)];
        text.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(r)]));
        move(
            [&](std::size_t done, int n, MPI_Request* request) {
                return MPI_Irecv(text.data() + done, n, MPI_CHAR, r, tag, comm_.handle(), request);
            },
            text.size());
    }
    return all;
}

std::int64_t Control::clock_offset_ns(const std::function<std::int64_t()>& now) const {
    constexpr int exchanges = 8;
    constexpr int tag = 2;
    std::int64_t quickest = std::numeric_limits<std::int64_t>::max();
    std::int64_t offset = 0;
    for (int r = 1; r < size_; ++r) {
        const Waiting waiting(*state_, "compare clocks", false);
        for (int i = 0; i < exchanges && (rank_ == 0 || rank_ == r); ++i) {
            std::int64_t theirs = 0;
            if (rank_ == 0) {
                check(MPI_Recv(&theirs, 1, MPI_INT64_T, r, tag, comm_.handle(), MPI_STATUS_IGNORE),
                      "compare clocks");
                theirs = now();
                check(MPI_Send(&theirs, 1, MPI_INT64_T, r, tag, comm_.handle()), "compare clocks");
                continue;
            }
            const std::int64_t sent = now();
            check(MPI_Send(&sent, 1, MPI_INT64_T, 0, tag, comm_.handle()), "compare clocks");
            check(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, tag, comm_.handle(), MPI_STATUS_IGNORE),
                  "compare clocks");
            const std::int64_t received = now();
            if (received - sent < quickest) {
                quickest = received - sent;
                offset = theirs - (sent + received) / 2;
            }
        }
        barrier();
    }
    return offset;
}

std::int64_t Control::sum(std::int64_t value) const {
    const auto all = gather(value);
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

std::int64_t Control::max(std::int64_t value) const {
    const auto all = gather(value);
    return *std::max_element(all.begin(), all.end());
}

void Control::barrier() const { static_cast<void>(gather(std::int64_t{0})); }

void Control::together(const std::function<void()>& work) const {
    std::optional<base::Error> mine;
    try {
        work();
    } catch (const base::Error& error) {
        mine = error;
    } catch (const std::exception& error) {
        mine = base::Error(base::Status::failed, error.what());
    }
    const auto statuses =
        gather(static_cast<std::int64_t>(mine ? mine->status() : base::Status::done));
    const auto bad = std::find_if(statuses.begin(), statuses.end(), [](auto s) { return s != 0; });
    if (bad == statuses.end()) {
        return;
    }
    const auto culprit = static_cast<std::size_t>(bad - statuses.begin());
    std::string text = mine && static_cast<std::size_t>(rank_) == culprit ? mine->what() : "";
    if (culprit != 0 && !text.empty()) {
        text = "rank " + std::to_string(rank_) + " (" + host_name() + "): " + text;
    }
    throw AgreedError(static_cast<base::Status>(*bad), gather(text)[culprit]);
}

} // namespace foregather::mesh
