// SPDX-License-Identifier: Apache-2.0
// Pass k + 1 is enqueued after the results of pass k - 1 were fetched; the host waits nowhere else.
#include "pass_loop.hpp"

#include <algorithm>
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
    : p_(parts), passes_(passes(std::ssize(parts.to_do), parts.control.size())) {
    device::Device& device = p_.backend.device();
    const PackPlan& packs = p_.inputs.packs;
    const base::Elements t = packs.most_tokens;
    const base::Elements rows = p_.sections.score.more() ? packs.most_rows : t;
    const model::HeadWants wants = head_wants(p_.sections.score);
    const model::ModelConfig& config = p_.inputs.config;
    results_ = RowsOnDevice(device, wants, rows, config);
    look_ = std::make_shared<device::Device::Look>([this] { tell_underway(); });
    device.look_while_waiting(look_);
    for (Flight& f : flights_) {
        f.results = RowsOnHost(device, wants, rows, config);
        f.upload = PackBuffers(device, t, packs.most_windows);
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
    if (p_.all_loaded) {
        stopped_ = EarlyStop::reason(p_.control.max(p_.stop.asked({})));
    }
    p_.watch.begin("pass", 1);
    for (std::int64_t pass = 0; pass < passes_ + 2; ++pass) {
        if (pass >= 2) {
            fetch(pass - 2, figures);
        }
        if (pass < passes_ && stopped_.empty()) {
            enqueue(pass);
            ++passes_begun_;
        }
    }
    p_.watch.end();
    if (passes_begun_ < passes_) {
        p_.source.stop_early();
    }
    figures.seconds[phase_run] += seconds(device.now_ns() - begin_ns_);
    figures.calls[phase_run] += passes_done_;
    figures.allocations_while_running = device.allocations() - allocations;
}

void PassLoop::enqueue(std::int64_t pass) {
    Flight& f = flight(pass);
    const std::int64_t turn = pass * p_.control.size() + p_.control.rank();
    const PackPlan& plan = p_.inputs.packs;
    f.pack = nullptr;
    if (turn < std::ssize(p_.to_do)) {
        const std::int64_t pack = p_.to_do[static_cast<std::size_t>(turn)];
        f.pack = &plan.packs[static_cast<std::size_t>(pack)];
        fill(f.inputs, *f.pack, *p_.inputs.tokens, plan.cut, p_.sections.score.more());
    } else {
        f.inputs = PackInputs{{}, {}, {0}, {}, {}, {}};
    }
    const auto t = std::ssize(f.inputs.ids);
    const auto s = std::ssize(f.inputs.rows);
    device::Device& device = p_.backend.device();
    device::Stream& compute = p_.compute;
    // Times of pass k are read when its results are fetched, before mark k + 2. Its first gathers
    // were enqueued in pass k - 1 and no earlier, since depth is less than a pass, into slots last
    // used in that pass (what is used before its end is in no slot that may be taken); a gather of
    // pass k follows a use of pass k - 1 at the earliest. So two marks follow the one before any.
    device.mark_time(compute);
    p_.source.begin_pass(t > 0);
    // The host side is free: the results of the pass that used it before have been fetched.
    const PackBuffers::Views in = f.upload.upload(f.inputs, compute);
    model::PackView what{in.ids, in.positions, in.offsets, in.rows, in.targets, {}};
    results_.point(what, s);
    p_.transformer.forward(p_.source, what, p_.backend.kernels(), compute);
    results_.copy_out(f.results, s, device, compute);
    f.done->record(compute);
}

void PassLoop::fetch(std::int64_t pass, RankFigures& figures) {
    if (pass >= passes_begun_) {
        return;
    }
    device::Device& device = p_.backend.device();
    Flight& f = flight(pass);
    const std::int64_t begin = device.now_ns();
    p_.watch.doing("waiting for its results");
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
    ++passes_done_;
    look_at_clock(pass, figures);
}

void PassLoop::write(const Flight& f, RankFigures& figures) {
    const Pack& pack = *f.pack;
    std::vector<float> logprob(static_cast<std::size_t>(pack.own.size()),
                               std::numeric_limits<float>::quiet_NaN());
    std::vector<std::uint8_t> greedy(logprob.size());
    const auto logprobs = f.results.logprobs();
    for (std::size_t s = 0; s < f.inputs.scores.size(); ++s) {
        if (f.inputs.scores[s] >= 0) {
            const auto token = static_cast<std::size_t>(f.inputs.scores[s] - pack.own.begin);
            logprob[token] = logprobs[s];
            greedy[token] = f.results.greedy_marks()[s];
            if (std::isfinite(logprobs[s])) {
                nll_ -= static_cast<double>(logprobs[s]);
                ++scored_;
            }
        }
    }
    p_.results.write_score(pack.own.begin, view(logprob), view(greedy));
    if (p_.sections.score.more()) {
        p_.results.write_rows(pack.rows.begin, pack.rows.size(), f.results.more());
    }
    write_documents(f);
    p_.results.mark_pack(&pack - p_.inputs.packs.packs.data());
    ++figures.packs;
    figures.tokens += pack.tokens;
    figures.scored += pack.scored;
    figures.head_rows += std::ssize(f.inputs.rows);
    for (const float entropy : f.results.more().entropy) {
        figures.entropy_sum += std::isfinite(entropy) ? static_cast<double>(entropy) : 0;
    }
}

// Sums of the documents that lie in this pack as a whole. Of the others the results file makes them
// when all is stored.
void PassLoop::write_documents(const Flight& f) {
    const auto& offsets = p_.inputs.tokens->offsets();
    const auto& scores = f.inputs.scores;
    std::vector<double> sums;
    std::vector<std::int64_t> counts;
    std::vector<std::uint8_t> status;
    std::int64_t first = 0; // document of sums[0]
    bool from_its_begin = false;
    double sum = 0; // of the present document, in the order of tokens
    std::int64_t n = 0;
    std::size_t s = 0;
    for_each_window(*f.pack, *p_.inputs.tokens, p_.inputs.packs.cut, [&](const Window& w) {
        const auto d = static_cast<std::size_t>(w.document);
        if (w.own.begin == offsets[d]) {
            from_its_begin = true;
            sum = 0;
            n = 0;
        }
        for (; s < scores.size() && scores[s] < w.own.end; ++s) {
            if (scores[s] >= 0) {
                sum -= static_cast<double>(f.results.logprobs()[s]);
                ++n;
            }
        }
        if (w.own.end == offsets[d + 1] && from_its_begin) {
            first = sums.empty() ? w.document : first;
            sums.push_back(sum);
            counts.push_back(n);
            status.push_back(static_cast<std::uint8_t>(io::status_of(n, sum)));
        }
    });
    if (!sums.empty()) {
        p_.results.write_documents(first, view(sums), view(counts), view(status));
    }
}

// Rank 0's clock decides for all: flushing is collective. To stop any rank may ask.
void PassLoop::look_at_clock(std::int64_t pass, RankFigures& figures) {
    constexpr std::int64_t flush_bit = 1;
    constexpr std::int64_t tell_bit = 2;
    const std::int64_t now = p_.backend.device().now_ns();
    std::int64_t due =
        (seconds(now - last_flush_ns_) > p_.sections.output.flush_every_s ? flush_bit : 0) |
        (seconds(now - last_told_ns_) > progress_every_s ? tell_bit : 0);
    const double pass_s = seconds(now - (pass == 0 ? begin_ns_ : last_look_ns_));
    last_look_ns_ = now;
    slowest_pass_s_ = std::max(slowest_pass_s_, pass_s);
    p_.watch.doing("waiting for the other ranks at the end of the pass");
    due = p_.control.max(due | p_.stop.asked({slowest_pass_s_, 0}));
    for (const std::string& note : p_.watch.take_notes()) {
        p_.noted(note);
    }
    if (stopped_.empty() && passes_begun_ < passes_) {
        stopped_ = EarlyStop::reason(due);
    }
    if (due >= EarlyStop::lowest_bit) { // the end is near: what is due is done there
        return;
    }
    if ((due & flush_bit) != 0) {
        p_.watch.begin("flush", ++flushes_);
        flush(figures);
    }
    if ((due & tell_bit) != 0) {
        const Sums done = sums();
        const double run_s = seconds(now - begin_ns_);
        const auto tokens = static_cast<double>(p_.control.sum(figures.tokens));
        p_.progress.tell({pass + 1, passes_, done.scored, p_.inputs.packs.scored, done.nll, run_s,
                          tokens / run_s});
        last_told_ns_ = now;
    }
    p_.watch.begin("pass", pass + 2);
}

void PassLoop::flush(RankFigures& figures) {
    const std::int64_t begin = p_.backend.device().now_ns();
    p_.watch.file_work(
        "flushing " + p_.results.part_path(), [&] { return p_.results.bytes_written(); },
        [&] { p_.results.flush(); });
    last_flush_ns_ = p_.backend.device().now_ns();
    figures.seconds[phase_flush] += seconds(last_flush_ns_ - begin);
    ++figures.calls[phase_flush];
}

// Only while a pass takes long.
void PassLoop::tell_underway() const {
    if (p_.watch.wants_detail()) {
        const auto work = p_.source.underway();
        p_.watch.doing(work ? describe(*work, p_.inputs.chain.units)
                            : "what comes before its first gather");
    }
}

PassLoop::Sums PassLoop::sums() const {
    Sums sums{p_.control.sum(scored_), 0};
    for (const double part : p_.control.gather(nll_)) {
        sums.nll += part;
    }
    return sums;
}

} // namespace foregather::job
