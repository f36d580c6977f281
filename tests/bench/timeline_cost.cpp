// SPDX-License-Identifier: Apache-2.0
// What keeping the timeline costs: the same passes by a source that keeps the spans of all of them
// and by one that keeps none, in pairs of short turns within one process. Prints the ratio.
//   mpirun -n 2 build/release-host/timeline_cost [PAIRS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <foregather/mesh/session.hpp>

#include "../../src/job/bench_statistics.hpp"
#include "../../src/job/score_rehearsal.hpp"
#include "../../src/job/weights_home.hpp"

using namespace foregather;

namespace {

// Layers that compute for a fraction of a millisecond: many more spans a second than a model of
// use has.
const char* const config_text = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 24, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 128,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": false, "torch_dtype": "float32", "attention_bias": false,
    "mlp_bias": false})";
constexpr std::int32_t tokens = 128;
constexpr std::int64_t passes = 8; // of a turn, the first not counted

job::PackInputs one_document() {
    job::PackInputs in;
    in.offsets = {0, tokens};
    for (std::int32_t t = 0; t < tokens; ++t) {
        in.ids.push_back(t % 256);
        in.positions.push_back(t);
        if (t + 1 < tokens) {
            in.rows.push_back(t);
            in.targets.push_back((t + 1) % 256);
        }
    }
    return in;
}

double turn(job::ScoreRehearsal& rehearsal, schedule::TimedSource& source) {
    const auto played = rehearsal.play({source}, passes, [](std::int64_t) {});
    double seconds = 0;
    for (std::size_t pass = 1; pass < played.size(); ++pass) {
        seconds += played[pass].step;
    }
    return seconds;
}

void measure(std::int64_t pairs) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    deck::DeviceSection section;
    section.kind = "host";
    section.threads = 1;
    const auto backend = backend::open(section, "device.kind", topology, control);
    const model::ModelConfig config = model::parse_config(config_text, "timeline_cost");
    const model::Chain chain = model::make_chain(config, {0});
    const job::Transport transport{topology.size() > 1 ? "mpi" : "none", ""};
    job::WeightsHome home(
        chain, transport, topology, *backend, {},
        {job::arena_plan(chain, topology.size(), backend::needs_of("host", 1), base::DType::f32),
         base::DType::f32, 2, false});
    model::Transformer transformer(config, chain, backend->device(),
                                   {tokens, tokens, base::DType::f32, {}, 1});
    const auto compute = backend->device().stream("compute", device::Priority::normal);
    job::ScoreRehearsal rehearsal({*backend, transformer, config, chain, *compute}, {}, tokens, 1);
    rehearsal.take(one_document());
    const schedule::Plan plan = schedule::forward_plan(chain.unit_order(), 0, 1);
    schedule::TimedSource& keeps = home.open_source({plan, 0, job::all_passes});
    schedule::TimedSource& forgets = home.open_source({plan, 0, 0});
    std::vector<double> with, without;
    for (std::int64_t pair = 0; pair <= pairs; ++pair) {
        const bool first = pair % 2 == 0;
        const double a = turn(rehearsal, first ? keeps : forgets);
        const double b = turn(rehearsal, first ? forgets : keeps);
        if (pair > 0) { // the first warms up
            with.push_back(first ? a : b);
            without.push_back(first ? b : a);
        }
    }
    if (control.first()) {
        const job::Ratio ratio = job::paired_ratio(with, without, 0);
        const auto spans = static_cast<double>(keeps.spans().size());
        std::printf("The timeline's cost: passes that keep it take %.4f times as long (95 %% "
                    "interval %.4f to %.4f, %lld pairs); %.0f us a span\n",
                    ratio.median, ratio.low, ratio.high, static_cast<long long>(pairs),
                    1e6 * job::median(with) * static_cast<double>(pairs + 1) / spans);
    }
}

} // namespace

int main(int argc, char** argv) {
    const mesh::Session session(&argc, &argv);
    measure(argc > 1 ? std::max(std::atoll(argv[1]), 1LL) : 60);
    return 0;
}
