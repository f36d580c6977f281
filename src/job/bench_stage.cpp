// SPDX-License-Identifier: Apache-2.0
// The parts of job score, and those of job train.
#include "bench_stage.hpp"

#include <algorithm>
#include <cstring>

#include <foregather/base/error.hpp>
#include <foregather/shard/save.hpp>

#include "checkpoints.hpp"
#include "score_rehearsal.hpp"
#include "train_rehearsal.hpp"

namespace foregather::job {
namespace {

void copy_part(base::ConstSlab from, base::Slab to) {
    if (from.n != to.n || from.type != to.type) {
        base::fail("parts of two transports differ in size");
    }
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes().count));
}

class ScoreStage final : public BenchStage {
public:
    ScoreStage(const Parts& parts, const Transport& transport)
        : BenchStage(parts, transport),
          home_(p_.inputs.chain, transport, p_.topology, p_.backend, p_.plan.sections.comm,
                {arena_plan(p_.inputs.chain, p_.topology.shard_size(), p_.needs, p_.param.type),
                 p_.param.type, p_.plan.slots, p_.plan.offload}) {
        p_.control.together([&] { open(); });
    }

    void load(io::WeightsFile& file) override {
        const auto work = [&] {
            p_.watch.file_work(
                "reading " + file.path(), [&] { return file.bytes_read(); },
                [&] { home_.load(file); });
        };
        if (transport_.name == "shared") {
            work(); // epochs in the window tell the others: no need to wait for the slowest
        } else {
            p_.control.together(work);
        }
    }
    void take_weights(BenchStage& from) override {
        for (base::UnitId unit = 0; unit < std::ssize(p_.inputs.chain.units); ++unit) {
            copy_part(base::ConstSlab(from.home().part_of(unit)), home_.part_of(unit));
        }
        home_.publish();
    }

    WeightsHome& home() override { return home_; }
    Rehearsal& rehearsal() override { return *rehearsal_; }
    device::Stream& compute() override { return *compute_; }

private:
    void open() {
        device::Device& device = p_.backend.device();
        const std::int64_t most = p_.plan.most_tokens();
        const model::HeadWants wants = head_wants(p_.plan.sections.score);
        transformer_ = std::make_unique<model::Transformer>(
            p_.inputs.config, p_.inputs.chain, device,
            model::Limits{most, std::min<std::int64_t>(most, p_.inputs.config.positions),
                          p_.param.type, wants, p_.backend.kernels().row_multiple()});
        p_.backend.kernels().prepare(transformer_->products());
        compute_ = device.stream("compute", device::Priority::normal);
        rehearsal_ = std::make_unique<ScoreRehearsal>(
            ScoreRehearsal::Parts{p_.backend, *transformer_, p_.inputs.config, p_.inputs.chain,
                                  *compute_},
            wants, most, most);
    }

    // Destroyed in reverse order: the rehearsal drains the stream before what its work uses goes.
    WeightsHome home_;
    std::unique_ptr<model::Transformer> transformer_;
    std::unique_ptr<device::Stream> compute_;
    std::unique_ptr<ScoreRehearsal> rehearsal_;
};

class TrainStage final : public BenchStage {
public:
    TrainStage(const Parts& parts, const Transport& transport)
        : BenchStage(parts, transport), inputs_(as_train_inputs(p_.inputs, p_.plan)),
          work_{p_.plan.sections,       inputs_,       p_.threads,     p_.topology.shard_size(),
                p_.topology.replicas(), p_.param.type, p_.plan.reduce, p_.needs},
          schedule_{bench_pass(p_.plan, p_.inputs.chain, 0), {}, {}, p_.plan.slots},
          trainer_({p_.plan.sections, inputs_, p_.topology, p_.control, p_.backend, transport_,
                    schedule_, work_}),
          rehearsal_({trainer_, p_.plan.sections.train, p_.control, p_.backend}, schedule_.plan,
                     p_.plan.most_tokens(), TrainRehearsal::Ending::update) {}

    void load(io::WeightsFile& file) override {
        io::CheckpointContent content;
        content.tensors = shard::tensors_of(p_.inputs.chain.units);
        Checkpoints checkpoints(p_.control, p_.watch, {}, content, trainer_.memory());
        checkpoints.begin(file);
        p_.control.together([&] { trainer_.publish(); });
    }
    void take_weights(BenchStage& from) override {
        auto& other = dynamic_cast<TrainStage&>(from);
        for (base::UnitId unit = 0; unit < std::ssize(p_.inputs.chain.units); ++unit) {
            const auto weights = other.trainer_.optimizer().weights(unit);
            std::copy(weights.begin(), weights.end(), trainer_.optimizer().weights(unit).begin());
        }
        p_.control.together([&] { trainer_.publish(); });
    }

    WeightsHome& home() override { return trainer_.home(); }
    Rehearsal& rehearsal() override { return rehearsal_; }
    schedule::GradientReducer* reducer() override { return &trainer_.reducer(); }
    device::Stream& compute() override { return trainer_.compute(); }

private:
    TrainInputs inputs_;
    TrainWork work_;
    TrainSchedule schedule_;
    Trainer trainer_;
    TrainRehearsal rehearsal_;
};

} // namespace

std::unique_ptr<BenchStage> open_stage(const BenchStage::Parts& parts, const Transport& transport) {
    if (parts.plan.trains) {
        return std::make_unique<TrainStage>(parts, transport);
    }
    return std::make_unique<ScoreStage>(parts, transport);
}

} // namespace foregather::job
