// SPDX-License-Identifier: Apache-2.0
// The key table: one entry per key, from which parsing, help, templates and the ledger are made.
// It decides names, ranges and marks; the defaults are the initial values of sections.hpp.
#include <foregather/deck/sections.hpp>

#include <algorithm>
#include <iterator>

#include <foregather/base/error.hpp>

#include "convert.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

// Key, member, range, unit, jobs, which of them need it, what a change means on resume, help.
constexpr Row first_rows[] = {
    {"job.name", [](Sections& s) -> Field { return &s.job.name; }, one_of("score train bench plan"),
     "", "all", required, Mark::identity,
     "What to do. score: the log-probability of every token. train: change the weights so that "
     "the tokens become likelier. bench: measure the passes of either at several depths of the "
     "prefetch, against each other and against the same work alone. plan: predict time "
     "and memory of either on any machine."},
    {"job.strict", [](Sections& s) -> Field { return &s.job.strict; }, boolean(), "", "all",
     optional, Mark::free,
     "Refuse the job if a key that was set would be inert or clamped, instead of telling so."},
    {"job.title", [](Sections& s) -> Field { return &s.job.title; }, line_of_text(0, 1024), "",
     "all", optional, Mark::told, "A line of text stored with the results."},
    {"job.max_time", [](Sections& s) -> Field { return &s.job.max_time_s; }, duration(0, 31536000),
     "s", "score train bench", optional, Mark::free,
     "Stop in time to save before so much time has passed since the start of the program; 0: the "
     "end of the batch job alone counts, where SLURM_JOB_END_TIME tells it. The run ends with "
     "status 75 and goes on when it is submitted again; a bench saves nothing and ends between "
     "two turns."},

    {"model.weights", [](Sections& s) -> Field { return &s.model.weights; }, path_or_none(), "",
     "score train bench", "score bench", Mark::identity,
     "Weights file; a checkpoint is one. train begins with these weights; empty: with random ones, "
     "for the model that model.config describes."},
    {"model.config", [](Sections& s) -> Field { return &s.model.config; }, path_or_none(), "",
     "train", optional, Mark::identity,
     "A config.json, to train its model from random weights: matrices from a normal distribution "
     "whose width is its initializer_range (0.02 if it has none), norm weights 1, biases 0. Only "
     "without model.weights."},
    {"model.init_seed", [](Sections& s) -> Field { return &s.model.init_seed; }, whole(0, most), "",
     "train", optional, Mark::identity,
     "Which random weights to begin with: the same at any number of ranks."},

    {"data.tokens", [](Sections& s) -> Field { return &s.data.tokens; }, path(), "",
     "score train bench", required, Mark::identity, "Token file."},
    {"data.window", [](Sections& s) -> Field { return &s.data.window; }, whole(0, most_int),
     "tokens", "score train", optional, Mark::identity,
     "Split documents into windows of this many tokens, positions from 0 in each; 0: none is "
     "split. A token is scored once, in the window that gives it the longest context; train: each "
     "window carries one token of the one before, and each token is learnt once. At least 2, and "
     "at most the model's positions."},
    {"data.stride", [](Sections& s) -> Field { return &s.data.stride; }, whole(0, most_int),
     "tokens", "score", optional, Mark::identity,
     "Tokens from the start of one window to that of the next, at most data.window - 1; 0: "
     "data.window - 1, so that one token is carried. Smaller strides give tokens more context and "
     "cost more."},
    {"data.max_documents", [](Sections& s) -> Field { return &s.data.max_documents; },
     whole(0, most), "documents", "score train", optional, Mark::identity,
     "Use this many documents from the start of the token file; 0: all."},
    {"data.any_tokenizer", [](Sections& s) -> Field { return &s.data.any_tokenizer; }, boolean(),
     "", "score train bench", optional, Mark::told,
     "Accept a token file made with another tokenizer than the weights name."},

    {"device.kind", [](Sections& s) -> Field { return &s.device.kind; }, one_of("auto host cuda"),
     "", "score train bench", optional, Mark::identity,
     "Where to compute. auto: cuda if this build has it and the node has a GPU for every "
     "local rank, else host; what was chosen and why is printed and recorded."},
    {"device.threads", [](Sections& s) -> Field { return &s.device.threads; }, whole(0, 4096),
     "threads", "score train bench", optional, Mark::told,
     "Compute threads of each rank on the host; 0: the cores that this node's ranks may use, "
     "divided by the local ranks, at least 1. Changes speed, never a result."},

    {"device.products", [](Sections& s) -> Field { return &s.device.products; },
     one_of("auto onednn openblas blis"), "", "score train bench", optional, Mark::identity,
     "Library of the matrix products on the host. auto: the one that was measured to be the "
     "fastest on such a processor, if all ranks can load it (oneDNN from AVX2 on), else "
     "openblas. Another library gives other bits."},

    {"device.tf32", [](Sections& s) -> Field { return &s.device.tf32; }, boolean(), "",
     "score train bench", optional, Mark::identity,
     "Let fp32 products on cuda round what they multiply to TF32 (10 bits of mantissa): faster, "
     "other bits."},

    {"mesh.shard", [](Sections& s) -> Field { return &s.mesh.shard; }, whole(0, most_int), "ranks",
     "score train bench", optional, Mark::told,
     "Ranks that hold one copy of the weights between them; 0: all. It must divide the number "
     "of ranks; the other factor is the number of replicas."},

    {"fsdp.forward_prefetch", [](Sections& s) -> Field { return &s.fsdp.forward_prefetch; },
     whole_or_auto(0, 64), "units", "score train bench", optional, Mark::told,
     "Units gathered ahead of the one being computed; 0: each gather is started only when its "
     "unit is needed, and waited for. auto: a few passes are measured before the run, and the "
     "smallest depth up to 8 is taken that leaves less than 2 % of a step exposed to gathers, or, "
     "where none does, that is within 1 % of the fastest; fsdp.gather_memory is kept to."},
    {"fsdp.backward_prefetch", [](Sections& s) -> Field { return &s.fsdp.backward_prefetch; },
     whole_or_auto(0, 64), "units", "train", optional, Mark::told,
     "The same in backward, whose order is the reverse: units gathered ahead of the one whose "
     "gradient is being computed. Where both are auto, both become the same depth."},
    {"fsdp.reshard_after_forward",
     [](Sections& s) -> Field { return &s.fsdp.reshard_after_forward; }, boolean(), "",
     "train bench plan", optional, Mark::told,
     "Free gathered weights after forward and gather them again in backward. false: keep those of "
     "all units until the optimizer has changed them: fewer gathers, and memory for the whole "
     "model. Changes no bit."},
    {"fsdp.param_dtype", [](Sections& s) -> Field { return &s.fsdp.param_dtype; },
     one_of("auto fp32 bf16"), "", "score train bench plan", optional, Mark::identity,
     "Type in which weights are held, gathered and multiplied; bf16 halves shards, gathers and "
     "slots, and rounds what is multiplied with them to bf16 too. auto: on cuda bf16 if the "
     "file's matrices are bf16, else fp32 (plan: bf16); on the host fp32. train: the optimizer's "
     "own weights "
     "are fp32 whatever this is."},
    {"fsdp.reduce_dtype", [](Sections& s) -> Field { return &s.fsdp.reduce_dtype; },
     one_of("fp32 bf16"), "", "train bench plan", optional, Mark::identity,
     "Type in which gradients travel between ranks; they are summed and kept in fp32. bf16 halves "
     "the bytes and rounds each rank's gradient."},
    {"fsdp.piece_bytes", [](Sections& s) -> Field { return &s.fsdp.piece_bytes; },
     byte_size(0, most), "bytes", "score train bench plan", optional, Mark::identity,
     "Largest piece of the embedding and of the head; 0: the largest layer, at least 4 MiB."},
    {"fsdp.gather_memory", [](Sections& s) -> Field { return &s.fsdp.gather_memory; },
     byte_size(0, most), "bytes", "score train bench plan", optional, Mark::told,
     "Hard limit of a rank's memory for gathered weights; 0: none. fsdp.forward_prefetch is "
     "clamped to what fits; where not even one unit fits, the job is refused."},

    {"fsdp.offload", [](Sections& s) -> Field { return &s.fsdp.offload; }, one_of("none params"),
     "", "score train bench", optional, Mark::told,
     "params: on cuda keep each rank's part of the weights in host memory and copy it up one unit "
     "ahead of its gather; refused on the host, where it is already, and in train. Changes no "
     "bit."},

    {"comm.transport", [](Sections& s) -> Field { return &s.comm.transport; },
     one_of("auto mpi shared nccl"), "", "score train bench", optional, Mark::told,
     "How gathers move. cuda: nccl. host: mpi, or shared (the ranks of one node read each "
     "other's shards in place). auto: nccl on cuda; on the host shared if all ranks of the "
     "shard group are on one node and comm.link_rate is 0, else mpi."},
    {"comm.timeout", [](Sections& s) -> Field { return &s.comm.timeout_s; },
     duration(1e-3, 31536000), "s", "score train bench", optional, Mark::free,
     "A collective that takes longer ends the job and names the ranks that did not arrive; between "
     "steps, when nothing has moved there for 1.25 times as long and 3 s. "
     "Reading and writing files is ended when no rank has moved a byte for this long."},
    {"comm.link_rate", [](Sections& s) -> Field { return &s.comm.link_rate_bytes_per_s; },
     byte_rate(1e3, 1e13), "bytes/s", "score train bench", optional, Mark::told,
     "Slow every gather and reduction to this rate, to study overlap on a machine without a "
     "network; 0: "
     "off. Recorded as an emulation wherever figures are shown. The emulated time does not "
     "count towards comm.timeout."},

    {"batch.tokens", [](Sections& s) -> Field { return &s.batch.tokens; }, whole(1, most_int),
     "tokens", "score train bench", optional, Mark::identity,
     "Tokens of each rank and pass. Whole documents are packed and none is padded; a longer "
     "document has a pack of its own."},

    {"score.temperature", [](Sections& s) -> Field { return &s.score.temperature; },
     real(1e-6, 1e6), "", "score", optional, Mark::identity,
     "Divide logits by this before the softmax."},
    {"score.entropy", [](Sections& s) -> Field { return &s.score.entropy; }, boolean(), "", "score",
     optional, Mark::identity,
     "Also store the entropy of the distribution predicted after each token, in nats."},
    {"score.top_k", [](Sections& s) -> Field { return &s.score.top_k; }, whole(0, most_int),
     "tokens", "score", optional, Mark::identity,
     "Also store so many of the most likely tokens after each token, and their log-probabilities; "
     "at most the vocabulary."},
    {"score.hidden_states", [](Sections& s) -> Field { return &s.score.hidden_states; }, boolean(),
     "", "score", optional, Mark::identity,
     "Also store the hidden state of each token after the final norm."},
    {"score.logits", [](Sections& s) -> Field { return &s.score.logits; }, boolean(), "", "score",
     optional, Mark::identity,
     "Also store the whole logits after each token, before score.temperature: for small models "
     "and tests."},

};

constexpr Row last_rows[] = {
    {"output.file", [](Sections& s) -> Field { return &s.output.file; }, path(), "", "all",
     required, Mark::free, "Results file."},
    {"output.existing", [](Sections& s) -> Field { return &s.output.existing; },
     one_of("refuse replace resume"), "", "all", optional, Mark::free,
     "What to do if the results file exists. resume: go on with what an interrupted run left in "
     "FILE.part, on any number of ranks; refused if tokens, weights or a key that can change a "
     "result differ. Without such a file, an ordinary run. A training run that goes on from a "
     "checkpoint goes on with its results too."},
    {"output.flush_every", [](Sections& s) -> Field { return &s.output.flush_every_s; },
     duration(1e-3, 31536000), "s", "score train", optional, Mark::free,
     "Bring results to disk this often: what a killed run may lose."},
    {"output.timeline", [](Sections& s) -> Field { return &s.output.timeline; }, boolean(), "",
     "score train bench", optional, Mark::told, "Record the spans of gathers and computes."},
    {"output.timeline_passes", [](Sections& s) -> Field { return &s.output.timeline_passes; },
     whole(2, most_int), "passes", "score train bench", optional, Mark::told,
     "The spans of the first and last half of this many passes are kept; figures cover every "
     "pass."},
    {"output.require", [](Sections& s) -> Field { return &s.output.require; },
     one_of("none observed"), "", "score train bench", optional, Mark::free,
     "observed: exit status 3 unless the clock has witnessed that gathers ran ahead; refused "
     "at the start where that could not be."},
    {"output.log", [](Sections& s) -> Field { return &s.output.log; }, path_or_none(), "",
     "score train bench", optional, Mark::free,
     "Progress as JSON lines in this file, one object a line; empty: none."},
    {"output.environment", [](Sections& s) -> Field { return &s.output.environment; },
     one_of("warn strict"), "", "score train bench", optional, Mark::free,
     "What to do about an environment variable that overrides or defeats a key: tell it, or refuse "
     "the job with all of them."},
};

} // namespace

std::span<const Row> table() {
    static const std::vector<Row> rows = [] {
        std::vector<Row> all(std::begin(first_rows), std::end(first_rows));
        const std::span<const Row> training = training_rows();
        all.insert(all.end(), training.begin(), training.end());
        const std::span<const Row> bench = bench_rows();
        all.insert(all.end(), bench.begin(), bench.end());
        const std::span<const Row> planning = planning_rows();
        all.insert(all.end(), planning.begin(), planning.end());
        all.insert(all.end(), std::begin(last_rows), std::end(last_rows));
        return all;
    }();
    return rows;
}

const Row* find_row(std::string_view key) {
    const std::span<const Row> rows = table();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.key == key; });
    return row == rows.end() ? nullptr : &*row;
}

std::vector<std::string> all_keys() {
    std::vector<std::string> keys;
    for (const Row& row : table()) {
        keys.emplace_back(row.key);
    }
    return keys;
}

std::vector<std::string> all_sections() {
    std::vector<std::string> sections;
    for (const Row& row : table()) {
        if (sections.empty() || sections.back() != row.section()) {
            sections.emplace_back(row.section());
        }
    }
    return sections;
}

std::vector<std::string> all_jobs() { return words_of(find_row("job.name")->rule.choices); }

const std::vector<KeyInfo>& known_keys() {
    static const std::vector<KeyInfo> keys = [] {
        std::vector<KeyInfo> infos;
        Sections defaults;
        for (const Row& row : table()) {
            const bool has_default = row.required_by.empty();
            infos.push_back({std::string(row.key), described(row.rule), std::string(row.unit),
                             std::string(row.jobs),
                             has_default ? written(row.rule, row.field(defaults)) : "",
                             std::string(row.required_by), row.mark, std::string(row.help)});
        }
        return infos;
    }();
    return keys;
}

namespace {

bool names(const std::string& jobs, std::string_view job) {
    const std::vector<std::string> words = words_of(jobs);
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return word == "all" || word == job; });
}

} // namespace

const KeyInfo& known_key(std::string_view key) {
    const std::vector<KeyInfo>& keys = known_keys();
    const auto at = std::find_if(keys.begin(), keys.end(),
                                 [&](const KeyInfo& info) { return info.key == key; });
    if (at == keys.end()) {
        base::fail("asked for " + printable(key) + ", which is no key of a deck");
    }
    return *at;
}

bool KeyInfo::serves(std::string_view job) const { return names(jobs, job); }

bool KeyInfo::is_required_by(std::string_view job) const {
    return serves(job) && names(required_by, job);
}

} // namespace foregather::deck
