// SPDX-License-Identifier: Apache-2.0
// What a bench makes of its turns: judged on rank 0, told, stored; the ledger closed.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "bench_report.hpp"
#include "bench_run.hpp"
#include "measure.hpp"
#include "provenance.hpp"
#include "span_table.hpp"

namespace foregather::job {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> from_bytes(const std::string& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

} // namespace

// Rank 0 judges for all.
void BenchRun::judge(const BenchPack& pack, const BenchTurns::Measured& measured) {
    std::vector<std::vector<Turn>> turns;
    for (const std::string& one : control_.gather_to_first(bytes_of(measured.turns))) {
        turns.push_back(from_bytes<Turn>(one));
    }
    std::vector<schedule::PassTimes> own(turns.size(), measured.alone.own);
    for (const auto member :
         {&schedule::PassTimes::compute, &schedule::PassTimes::gather, &schedule::PassTimes::reduce,
          &schedule::PassTimes::replica, &schedule::PassTimes::optimizer}) {
        const auto all = control_.gather_to_first(bytes_of(measured.alone.own.*member));
        for (std::size_t r = 0; r < own.size(); ++r) {
            own[r].*member = from_bytes<double>(all[r]);
        }
    }
    const auto between = control_.gather(measured.alone.own.between);
    if (!control_.first()) {
        return;
    }
    for (std::size_t r = 0; r < own.size(); ++r) {
        own[r].between = between[r];
        turns_[r].insert(turns_[r].end(), turns[r].begin(), turns[r].end());
    }
    configurations_.push_back(judge_turns(facts(), static_cast<int>(configurations_.size()),
                                          stage_->transport(), pack, turns, own,
                                          measured.alone.agreed));
}

// Of each depth, over all that its source did so far.
void BenchRun::take_verdicts(BenchTurns& turns) {
    const std::vector<int>& depths = plan_.depths_of(stage_->transport());
    for (std::size_t d = 0; d < depths.size(); ++d) {
        RankFigures own;
        own.packs = 1;
        for (const auto direction : {schedule::Direction::forward, schedule::Direction::backward}) {
            take(own, turns.source(d).figures(direction), direction);
        }
        const auto ranks = gather_figures(control_, own);
        if (!control_.first() || !moves(stage_->transport())) {
            continue;
        }
        auto verdict = schedule::Verdict::inert;
        for (const auto direction : {schedule::Direction::forward, schedule::Direction::backward}) {
            const RunPrefetch run = judge_run(ranks, direction);
            if (schedule::worst(verdict, run.verdict) != verdict) {
                verdict = run.verdict;
                if (schedule::worst(seen_.verdict, verdict) != seen_.verdict) {
                    seen_.verdict = verdict;
                    seen_.reason = run.reason;
                }
            }
            seen_.order_wrong = seen_.order_wrong || run.order_wrong;
        }
        configurations_.back().depths[d].verdict = name_of(verdict);
    }
}

void BenchRun::take_figures(BenchTurns& turns) {
    device::Device& device = backend_->device();
    const std::size_t last = plan_.depths_of(stage_->transport()).size() - 1;
    measure(figures_,
            {*backend_, turns.source(last), stage_->home().communicator(), stage_->compute(),
             inputs_.weights->bytes_read(), *results_, *watch_, product_s_before_, plan_.offload});
    if (const schedule::GradientReducer* reducer = stage_->reducer()) {
        const schedule::ReduceFigures f = reducer->figures();
        take(figures_, f);
        figures_.train.reduce_bytes_per_s =
            f.reduce_s > 0 ? static_cast<double>(f.received.count) / f.reduce_s : 0;
    }
    transport_seen_ += (transport_seen_.empty() ? "" : "; ") + stage_->home().transport();
    weights_seen_ = stage_->home().weights_type();
    const std::int64_t offset = control_.clock_offset_ns([&] { return device.now_ns(); });
    packed_spans_ = turns.latest_spans({offset_at_start_ns_, offset, begin_ns_, device.now_ns()});
}

// On rank 0.
BenchResults BenchRun::results(const BenchFacts& facts) const {
    BenchResults b{facts, inputs_, topology_, configurations_, {}, turns_, 0, backend_->kind()};
    for (const ConfigurationFigures& c : configurations_) {
        std::vector<const ConfigurationFigures*> same;
        for (const ConfigurationFigures& other : configurations_) {
            if (other.transport == c.transport) {
                same.push_back(&other);
            }
        }
        b.recommendations.push_back(recommend(facts, c, same));
    }
    for (const Transport& transport : plan_.transports) {
        b.link_rate = std::max(b.link_rate, emulated_rate(deck_, transport));
    }
    return b;
}

base::Status BenchRun::finish() {
    const auto packed = control_.gather_to_first(packed_spans_);
    const auto ranks = gather_figures(control_, figures_);
    io::Table spans = span_table(packed, inputs_.chain);
    auto status = base::Status::done;
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    std::string told;
    if (control_.first()) {
        const BenchFacts known = facts();
        const BenchResults b = results(known);
        told = bench_report({"bench", deck_, topology_, plan_.transports.front(), backend_->kind(),
                             backend_->why, backend_->kernels().product_name(),
                             backend_->device().facts()},
                            b, plan_.memory, ranks, notes_);
        texts = {finished_text(), {"/provenance/report", told}};
        if (const std::string how = backend_->kernels().algorithms(); !how.empty()) {
            texts.push_back({"/provenance/algorithms", how});
        }
        const auto rows = std::get<std::vector<std::int64_t>>(spans.columns.front().values).size();
        status = close_ledger(b, ranks, rows);
        tables = closing_tables(b, ranks, std::move(spans));
    }
    watch_->file_work(
        "completing " + results_->part_path(), [&] { return results_->bytes_written(); },
        [&] { results_->finish(std::nullopt, tables, texts); });
    progress_->say(told + "results    " + s_.output.file);
    if (control_.first()) {
        for (const std::string& problem : ledger_.problems()) {
            std::fprintf(stderr, "%s\n", problem.c_str());
        }
    }
    return static_cast<base::Status>(control_.broadcast(static_cast<std::int64_t>(status)));
}

base::Status BenchRun::close_ledger(const BenchResults& b, const std::vector<RankFigures>& ranks,
                                    std::size_t spans_kept) {
    for (const ConfigurationFigures& c : b.configurations) {
        for (const DepthFigures& d : c.depths) {
            progress_->log({{"event", "depth"},
                            {"transport", c.transport},
                            {"tokens", c.tokens},
                            {"depth", d.depth},
                            {"step_s", d.step},
                            {"ratio", d.ratio.median},
                            {"limit_s", d.limit}});
        }
    }
    progress_->log({{"event", "done"}, {"turns", b.turns.front().size()}});
    const Transport* moving = &plan_.transports.front();
    for (const Transport& transport : plan_.transports) {
        moving = moves(transport) ? &transport : moving;
    }
    seen_.spans_kept = spans_kept;
    seen_.lines_logged = progress_->lines_logged();
    seen_.replaced = replaced_;
    seen_.run_s = figures_.seconds[phase_run];
    for (const RankFigures& r : ranks) {
        seen_.reduce_bytes_per_s = std::max(seen_.reduce_bytes_per_s, r.train.reduce_bytes_per_s);
        seen_.reduce_bytes =
            std::max(seen_.reduce_bytes, static_cast<double>(r.train.bytes_reduced));
    }
    if (plan_.trains) {
        const TrainInputs inputs = as_train_inputs(inputs_, plan_);
        seen_.activations = model::TrainableTransformer::activation_bytes(
            inputs_.config,
            training_limits({plan_.sections, inputs, threads(), topology_.shard_size(),
                             topology_.replicas(), param_.type, plan_.reduce, needs()}));
    }
    settle_bench_after(ledger_, b,
                       {deck_, topology_, *moving, transport_seen_, backend_->kind(), backend_->why,
                        backend_->kernels().product_name(), backend_->why_product, param_,
                        weights_seen_, plan_.memory, ranks, backend_->overrides},
                       seen_);
    return ledger_.close();
}

std::vector<io::Table> BenchRun::closing_tables(const BenchResults& b,
                                                const std::vector<RankFigures>& ranks,
                                                io::Table spans) const {
    std::vector<io::Table> tables = bench_tables(b);
    tables.push_back(units_table(inputs_.chain, topology_.shard_size(), param_.type));
    tables.push_back(ranks_table(ranks, plan_.trains));
    if (s_.output.timeline) {
        tables.push_back(std::move(spans));
    }
    tables.push_back(ledger_table(ledger_));
    std::vector<std::array<std::string, 3>> choices = {
        {"device", backend_->kind(), backend_->why},
        {"products", backend_->kernels().product_name(), backend_->why_product},
        {"weights", base::name_of(param_.type), param_.why}};
    for (const Transport& transport : plan_.transports) {
        choices.push_back({"transport", transport.name, transport.why});
    }
    tables.push_back(choices_table(choices));
    return tables;
}

} // namespace foregather::job
