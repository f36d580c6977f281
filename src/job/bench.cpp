// SPDX-License-Identifier: Apache-2.0
// From deck to figures in order: decide and refuse, lay out, load, take turns, judge, finish.
#include "bench.hpp"

#include <algorithm>
#include <filesystem>

#include "bench_report.hpp"
#include "bench_run.hpp"
#include "environment.hpp"
#include "paths.hpp"
#include "provenance.hpp"

namespace foregather::job {

BenchRun::BenchRun(const deck::Deck& deck, const Start& start)
    : deck_(deck), start_(start), s_(deck.sections()),
      topology_(s_.mesh.shard, deck.where("mesh.shard")), control_(topology_.world()),
      ledger_(deck) {}

base::Status BenchRun::run() {
    decide();
    prepare();
    for (const Transport& transport : plan_.transports) {
        open_next(transport);
        BenchTurns turns(*stage_, parts(), plan_.depths_of(transport));
        measure_transport(turns);
        if (!stopped_.empty()) {
            break;
        }
    }
    return stopped_.empty() ? finish() : stop();
}

BenchGround BenchRun::ground() const {
    const mesh::WindowSpace space = mesh::window_space();
    return {deck_,
            inputs_,
            topology_.shard_size(),
            topology_.replicas(),
            threads(),
            needs(),
            param_,
            backend_->transport(),
            backend_->can_share(),
            {topology_.shard_size(), topology_.shard_on_one_node(), topology_.local_size(),
             space.free, space.directory},
            (topology_.local_size() + topology_.shard_size() - 1) / topology_.shard_size()};
}

// Everything that can be refused, before any work and before any file exists.
void BenchRun::decide() {
    watch_ = std::make_unique<mesh::Watch>(topology_, control_, s_.comm.timeout_s);
    control_.together([&] {
        inputs_ = open_bench_inputs(deck_, control_.first());
        if (control_.first()) {
            refuse_overlaps(deck_, start_.deck_name);
            refuse_bench_output(deck_);
            refuse_unusable(output());
            replaced_ = std::filesystem::exists(s_.output.file);
        }
    });
    backend_ = backend::open(s_.device, deck_.where("device.kind"), topology_, control_);
    // On the device's clock, when main() began: set-up counts from there.
    begin_ns_ = backend_->device().now_ns() -
                (std::chrono::steady_clock::now() - start_.begin) / std::chrono::nanoseconds(1);
    control_.together([&] {
        guard_environment(deck_, topology_, *backend_);
        refuse_wide_heads(deck_, inputs_.config.head_dim, *backend_);
    });
    plan();
    control_.together([&] {
        early_ = std::make_unique<EarlyStop>(deck_, start_, control_);
        progress_ = std::make_unique<Progress>(control_.first(), s_.output.log, false);
    });
    tell_notes();
}

void BenchRun::plan() {
    param_ = choose_param_type(s_.fsdp.param_dtype, backend_->kind(), inputs_.weights->tensors());
    control_.together([&] { plan_ = plan_bench(ground()); });
    for (Transport& transport : plan_.transports) {
        const bool shared = transport.name == "shared";
        if (control_.max(shared ? 0 : 1) == 1 && shared) {
            transport = {backend_->transport(), "another node has no room for a shared window"};
        }
    }
    control_.together([&] {
        settle_bench_before(ledger_, ground(), plan_, backend_->kind());
        ledger_.refuse_if_strict();
        refuse_beyond_device(plan_.memory, backend_->device().facts());
    });
}

void BenchRun::tell_notes() {
    for (const auto& more :
         {inputs_.notes, backend_->notes, backend_->overrides, bench_notes(deck_, plan_),
          ledger_.inert_notes(), ledger_.clamp_notes()}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    if (!early_->limit().empty()) {
        notes_.push_back(early_->limit());
    }
    const std::string beyond =
        memory_in_node(plan_.memory, topology_.local_size(), needs(), node_memory()).note();
    if (!beyond.empty()) {
        notes_.push_back(beyond);
    }
    if (!start_.launcher_warning.empty()) {
        notes_.push_back(start_.launcher_warning);
    }
    for (const std::string& note : notes_) {
        progress_->say("note: " + note);
    }
}

void BenchRun::prepare() {
    lay_out_results();
    turns_.resize(static_cast<std::size_t>(control_.first() ? topology_.size() : 0));
    offset_at_start_ns_ = control_.clock_offset_ns([&] { return backend_->device().now_ns(); });
    figures_.seconds[phase_setup] = since_start(backend_->device().now_ns());
    figures_.calls[phase_setup] = 1;
}

void BenchRun::lay_out_results() {
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    const device::Facts device = backend_->device().facts();
    const auto devices =
        control_.gather(device.name + (device.address.empty() ? "" : " " + device.address));
    if (control_.first()) {
        const InputRow weights =
            input_row(inputs_.weights->path(), inputs_.weights->content_sha256());
        tables = provenance_tables(
            {weights,
             input_row(inputs_.tokens->path(), inputs_.tokens_sha256, inputs_.tokens->sealed()),
             text_row(weights, "/config", inputs_.weights->config_json(),
                      inputs_.weights->config_sealed())},
            topology_, devices);
        tables.push_back(io::starts_table({run_start(start_, topology_.size(), 0)}));
        for (io::Table& table : bench_start_tables(facts())) {
            tables.push_back(std::move(table));
        }
        texts = provenance_texts(deck_, start_);
        texts.push_back(bench_config_text(inputs_));
    }
    results_ = std::make_unique<io::ResultsFile>(control_, output(), std::nullopt, tables, texts);
    if (!results_->note().empty()) {
        notes_.push_back(results_->note());
        progress_->say("note: " + results_->note());
    }
}

// The parts of the next transport, with the weights of the one before: they are read once.
void BenchRun::open_next(const Transport& transport) {
    std::unique_ptr<BenchStage> next = open_stage(parts(), transport);
    if (stage_) {
        next->take_weights(*stage_);
        control_.barrier();
        stage_ = std::move(next);
        return;
    }
    stage_ = std::move(next);
    load();
}

void BenchRun::load() {
    device::Device& device = backend_->device();
    const std::int64_t begin = device.now_ns();
    stage_->load(*inputs_.weights);
    product_s_before_ = backend_->kernels().product_seconds().value_or(0);
    figures_.seconds[phase_load] = static_cast<double>(device.now_ns() - begin) * 1e-9;
    figures_.calls[phase_load] = 1;
}

void BenchRun::measure_transport(BenchTurns& turns) {
    device::Device& device = backend_->device();
    const std::int64_t begin = device.now_ns();
    for (const std::int64_t tokens : plan_.tokens) {
        const BenchPack pack = bench_pack(*inputs_.tokens, tokens, inputs_.config.positions);
        const auto told = [&](std::int64_t round) {
            ++rounds_done_;
            progress_->say(round_line(stage_->transport(), tokens, round, s_.bench.pairs));
            progress_->log({{"event", "round"},
                            {"transport", stage_->transport().name},
                            {"tokens", tokens},
                            {"round", round},
                            {"rounds", s_.bench.pairs}});
        };
        const BenchTurns::Measured measured =
            turns.run(static_cast<std::int64_t>(rounds_done_ / s_.bench.pairs), pack, told,
                      [&] { return goes_on(); });
        if (!stopped_.empty()) {
            return;
        }
        figures_.allocations_while_running += measured.allocations;
        figures_.packs +=
            std::ssize(measured.turns) * (s_.bench.warmup + s_.bench.steps) * plan_.passes_per_step;
        judge(pack, measured);
        take_verdicts(turns);
    }
    figures_.seconds[phase_run] += static_cast<double>(device.now_ns() - begin) * 1e-9;
    take_figures(turns);
}

// Before each turn, so that no rank begins one that another does not.
bool BenchRun::goes_on() {
    const std::int64_t now = backend_->device().now_ns();
    if (turns_begun_ > 0) {
        slowest_turn_s_ =
            std::max(slowest_turn_s_, static_cast<double>(now - last_turn_ns_) * 1e-9);
    }
    stopped_ = EarlyStop::reason(control_.max(early_->asked({slowest_turn_s_, 0})));
    if (!stopped_.empty()) {
        return false;
    }
    last_turn_ns_ = now;
    ++turns_begun_;
    return true;
}

// Figures of a part of the turns would be other figures: nothing is kept.
base::Status BenchRun::stop() {
    stage_.reset();
    results_.reset();
    control_.together([&] {
        early_->take_away_file();
        if (control_.first()) {
            std::filesystem::remove(io::part_path(s_.output.file));
        }
    });
    progress_->log({{"event", "stopped"},
                    {"reason", stopped_},
                    {"turns_done", turns_begun_},
                    {"turns", plan_.turns()}});
    progress_->say("stopped after turn " + std::to_string(turns_begun_) + " of " +
                   std::to_string(plan_.turns()) + " (" + stopped_ +
                   "): a bench keeps nothing of a part of its turns; give it more time, or fewer "
                   "turns");
    return base::Status::stopped;
}

base::Status bench(const deck::Deck& deck, const Start& start) {
    return BenchRun(deck, start).run();
}

} // namespace foregather::job
