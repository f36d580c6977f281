// SPDX-License-Identifier: Apache-2.0
// Pass k + 1 is enqueued after the results of pass k - 1 were fetched; the host waits nowhere else.
#include "pass_loop.hpp"

#include <cmath>
#include <limits>

#include "limits.hpp"

namespace foregather::job {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

template <class T>
base::View<const T> view(const std::vector<T>& values) {
    return values;
}

} // namespace

PassLoop::PassLoop(const Parts& parts)
    : p_(parts), passes_(passes(parts.inputs.packs, parts.control.size())) {
    device::Device& device = p_.backend.device();
    const base::Elements t = p_.inputs.packs.most_tokens;
    std::int64_t most_documents = 0;
    for (const Pack& pack : p_.inputs.packs.packs) {
        most_documents = std::max(most_documents, pack.documents);
    }
    for (Flight& f : flights_) {
        f.ids = {device, t, "token ids"};
        f.positions = {device, t, "positions"};
        f.offsets = {device, most_documents + 1, "document offsets"};
        f.rows = {device, t, "scored rows"};
        f.targets = {device, t, "targets"};
        f.device_logprob = {device, t, "log-probabilities"};
        f.device_greedy = {device, t, "greedy marks"};
        f.done = device.event();
    }
}

PassLoop::~PassLoop() {
    try {
        p_.compute.sync();
    } catch (const std::exception&) { // a stream has failed: fetch() has thrown it already
    }
}

void PassLoop::run(RankFigures& figures) {
    device::Device& device = p_.backend.device();
    const int allocations = device.allocations();
    begin_ns_ = last_flush_ns_ = last_told_ns_ = device.now_ns();
    for (std::int64_t pass = 0; pass < passes_ + 2; ++pass) {
        if (pass >= 2) {
            fetch(pass - 2, figures);
        }
        if (pass < passes_) {
            enqueue(pass);
        }
    }
    p_.compute.sync();
    figures.seconds[phase_run] += seconds(device.now_ns() - begin_ns_);
    figures.calls[phase_run] += passes_;
    figures.allocations_while_running = device.allocations() - allocations;
}

void PassLoop::enqueue(std::int64_t pass) {
    Flight& f = flight(pass);
    const std::int64_t pack = pass * p_.control.size() + p_.control.rank();
    const auto& packs = p_.inputs.packs.packs;
    f.pack = pack < std::ssize(packs) ? &packs[static_cast<std::size_t>(pack)] : nullptr;
    f.inputs = f.pack != nullptr ? std::move(f.inputs) : PackInputs{{}, {}, {0}, {}, {}};
    if (f.pack != nullptr) {
        fill(f.inputs, *f.pack, *p_.inputs.tokens);
    }
    const auto t = std::ssize(f.inputs.ids);
    const auto s = std::ssize(f.inputs.rows);
    f.logprob.resize(static_cast<std::size_t>(s));
    f.greedy.resize(static_cast<std::size_t>(s));
    device::Device& device = p_.backend.device();
    device::Stream& compute = p_.compute;
    const auto upload = [&](const std::vector<std::int32_t>& from, const auto& to) {
        device.copy_in(view(from), to.first(std::ssize(from)), compute);
    };
    upload(f.inputs.ids, f.ids);
    upload(f.inputs.positions, f.positions);
    upload(f.inputs.offsets, f.offsets);
    upload(f.inputs.rows, f.rows);
    upload(f.inputs.targets, f.targets);
    const auto view_of = [](const auto& buffer, std::int64_t n) {
        return base::View<const std::int32_t>(buffer.first(n));
    };
    p_.source.begin_pass(t > 0);
    p_.transformer.forward(p_.source,
                           {view_of(f.ids, t), view_of(f.positions, t),
                            view_of(f.offsets, std::ssize(f.inputs.offsets)), view_of(f.rows, s),
                            view_of(f.targets, s), f.device_logprob.first(s),
                            f.device_greedy.first(s)},
                           p_.backend.kernels(), compute);
    device.copy_out(base::View<const float>(f.device_logprob.first(s)),
                    base::View<float>(f.logprob), compute);
    device.copy_out(base::View<const std::uint8_t>(f.device_greedy.first(s)),
                    base::View<std::uint8_t>(f.greedy), compute);
    f.done->record(compute);
}

void PassLoop::fetch(std::int64_t pass, RankFigures& figures) {
    if (pass >= passes_ || pass < 0) {
        return;
    }
    device::Device& device = p_.backend.device();
    Flight& f = flight(pass);
    const std::int64_t begin = device.now_ns();
    f.done->wait_host();
    figures.seconds[phase_wait] += seconds(device.now_ns() - begin);
    ++figures.calls[phase_wait];
    p_.source.collect_pass();
    if (f.pack != nullptr) {
        const std::int64_t write_begin = device.now_ns();
        p_.watch.file_work(
            "writing scores to " + p_.results.part_path(),
            [&] { return p_.results.bytes_written(); }, [&] { write(f, figures); });
        figures.seconds[phase_write] += seconds(device.now_ns() - write_begin);
        ++figures.calls[phase_write];
    }
    look_at_clock(pass, figures);
}

void PassLoop::write(const Flight& f, RankFigures& figures) {
    const Pack& pack = *f.pack;
    std::vector<float> logprob(static_cast<std::size_t>(pack.tokens),
                               std::numeric_limits<float>::quiet_NaN());
    std::vector<std::uint8_t> greedy(logprob.size());
    std::vector<double> nll;
    std::vector<std::int64_t> scored;
    std::vector<std::uint8_t> status;
    std::size_t s = 0;
    for (std::size_t d = 0; d + 1 < f.inputs.offsets.size(); ++d) {
        double sum = 0; // in the order of tokens
        std::int64_t n = 0;
        for (; s < f.inputs.rows.size() && f.inputs.rows[s] + 1 < f.inputs.offsets[d + 1];
             ++s, ++n) {
            const auto token = static_cast<std::size_t>(f.inputs.rows[s]) + 1;
            logprob[token] = f.logprob[s];
            greedy[token] = f.greedy[s];
            sum -= static_cast<double>(f.logprob[s]);
        }
        const auto what = n == 0               ? io::DocumentStatus::nothing_to_score
                          : std::isfinite(sum) ? io::DocumentStatus::scored
                                               : io::DocumentStatus::not_finite;
        nll.push_back(sum);
        scored.push_back(n);
        status.push_back(static_cast<std::uint8_t>(what));
        if (what == io::DocumentStatus::scored) {
            nll_ += sum;
            scored_ += n;
        }
    }
    p_.results.write_score(pack.first_token, view(logprob), view(greedy));
    p_.results.write_documents(pack.first_document, view(nll), view(scored), view(status));
    p_.results.mark_pack(&pack - p_.inputs.packs.packs.data());
    ++figures.packs;
    figures.tokens += pack.tokens;
    figures.scored += pack.scored;
}

// Rank 0's clock decides for all: flushing is collective.
void PassLoop::look_at_clock(std::int64_t pass, RankFigures& figures) {
    constexpr std::int64_t flush_bit = 1;
    constexpr std::int64_t tell_bit = 2;
    const std::int64_t now = p_.backend.device().now_ns();
    std::int64_t due = (seconds(now - last_flush_ns_) > flush_every_s ? flush_bit : 0) |
                       (seconds(now - last_told_ns_) > progress_every_s ? tell_bit : 0);
    due = p_.control.broadcast(due);
    if ((due & flush_bit) != 0) {
        p_.watch.file_work(
            "flushing " + p_.results.part_path(), [&] { return p_.results.bytes_written(); },
            [&] { p_.results.flush(); });
        last_flush_ns_ = p_.backend.device().now_ns();
        figures.seconds[phase_flush] += seconds(last_flush_ns_ - now);
        ++figures.calls[phase_flush];
    }
    if ((due & tell_bit) != 0) {
        double nll = 0;
        for (const double part : p_.control.gather(nll_)) {
            nll += part;
        }
        const double run_s = seconds(now - begin_ns_);
        const auto tokens = static_cast<double>(p_.control.sum(figures.tokens));
        p_.progress.tell({pass + 1, passes_, p_.control.sum(scored_), p_.inputs.packs.scored, nll,
                          run_s, tokens / run_s});
        last_told_ns_ = now;
    }
}

} // namespace foregather::job
