// SPDX-License-Identifier: Apache-2.0
// The key table: one entry per key, from which parsing, help, templates and the ledger are made.
// It decides names, ranges and marks; the defaults are the initial values of sections.hpp.
#include <foregather/deck/sections.hpp>

#include <algorithm>
#include <iterator>

#include "convert.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

constexpr Presence required = Presence::required;
constexpr Presence optional = Presence::optional;

// Key, member, range, unit, jobs, must it be given, what a change means on resume, help.
// Constant, so that it is there before any code runs.
constexpr Row rows[] = {
    {"job.name", [](Sections& s) -> Field { return &s.job.name; }, one_of("score"), "", "all",
     required, Mark::identity, "What to do. score: the log-probability of every token."},
    {"job.strict", [](Sections& s) -> Field { return &s.job.strict; }, boolean(), "", "all",
     optional, Mark::free,
     "Refuse the job if a key that was set would be inert or clamped, instead of telling so."},
    {"job.title", [](Sections& s) -> Field { return &s.job.title; }, line_of_text(0, 1024), "",
     "all", optional, Mark::told, "A line of text stored with the results."},

    {"model.weights", [](Sections& s) -> Field { return &s.model.weights; }, path(), "", "score",
     required, Mark::identity, "Weights file."},

    {"data.tokens", [](Sections& s) -> Field { return &s.data.tokens; }, path(), "", "score",
     required, Mark::identity, "Token file."},
    {"data.window", [](Sections& s) -> Field { return &s.data.window; }, whole(0, most_int),
     "tokens", "score", optional, Mark::identity,
     "Split documents into windows of this many tokens, positions from 0 in each; 0: none is "
     "split. A token is scored once, in the window that gives it the longest context. At least 2, "
     "and at most the model's positions."},
    {"data.stride", [](Sections& s) -> Field { return &s.data.stride; }, whole(0, most_int),
     "tokens", "score", optional, Mark::identity,
     "Tokens from the start of one window to that of the next, at most data.window - 1; 0: "
     "data.window - 1, so that one token is carried. Smaller strides give tokens more context and "
     "cost more."},
    {"data.max_documents", [](Sections& s) -> Field { return &s.data.max_documents; },
     whole(0, most), "documents", "score", optional, Mark::identity,
     "Use this many documents from the start of the token file; 0: all."},
    {"data.any_tokenizer", [](Sections& s) -> Field { return &s.data.any_tokenizer; }, boolean(),
     "", "score", optional, Mark::told,
     "Accept a token file made with another tokenizer than the weights name."},

    {"device.kind", [](Sections& s) -> Field { return &s.device.kind; }, one_of("auto host cuda"),
     "", "all", optional, Mark::identity,
     "Where to compute. auto: cuda if this build has it and the node has a GPU for every "
     "local rank, else host; what was chosen and why is printed and recorded."},
    {"device.threads", [](Sections& s) -> Field { return &s.device.threads; }, whole(0, 4096),
     "threads", "all", optional, Mark::told,
     "Compute threads of each rank on the host; 0: the cores that this node's ranks may use, "
     "divided by the local ranks, at least 1. Changes speed, never a result."},

    {"device.products", [](Sections& s) -> Field { return &s.device.products; },
     one_of("auto onednn openblas blis"), "", "score", optional, Mark::identity,
     "Library of the matrix products on the host. auto: the one that was measured to be the "
     "fastest on such a processor, if all ranks can load it (oneDNN from AVX2 on), else "
     "openblas. Another library gives other bits."},

    {"device.tf32", [](Sections& s) -> Field { return &s.device.tf32; }, boolean(), "", "score",
     optional, Mark::identity,
     "Let fp32 products on cuda round what they multiply to TF32 (10 bits of mantissa): faster, "
     "other bits."},

    {"mesh.shard", [](Sections& s) -> Field { return &s.mesh.shard; }, whole(0, most_int), "ranks",
     "all", optional, Mark::told,
     "Ranks that hold one copy of the weights between them; 0: all. It must divide the number "
     "of ranks; the other factor is the number of replicas."},

    {"fsdp.forward_prefetch", [](Sections& s) -> Field { return &s.fsdp.forward_prefetch; },
     whole(0, 64), "units", "score", optional, Mark::told,
     "Units gathered ahead of the one being computed; 0: each gather is started only when its "
     "unit is needed, and waited for."},
    {"fsdp.param_dtype", [](Sections& s) -> Field { return &s.fsdp.param_dtype; },
     one_of("auto fp32 bf16"), "", "score", optional, Mark::identity,
     "Type in which weights are held, gathered and multiplied; bf16 halves shards, gathers and "
     "slots, and rounds what is multiplied with them to bf16 too. auto: on cuda bf16 if the "
     "file's matrices are bf16, else fp32; on the host fp32."},
    {"fsdp.piece_bytes", [](Sections& s) -> Field { return &s.fsdp.piece_bytes; },
     byte_size(0, most), "bytes", "score", optional, Mark::identity,
     "Largest piece of the embedding and of the head; 0: the largest layer, at least 4 MiB."},
    {"fsdp.gather_memory", [](Sections& s) -> Field { return &s.fsdp.gather_memory; },
     byte_size(0, most), "bytes", "score", optional, Mark::told,
     "Hard limit of a rank's memory for gathered weights; 0: none. fsdp.forward_prefetch is "
     "clamped to what fits; where not even one unit fits, the job is refused."},

    {"fsdp.offload", [](Sections& s) -> Field { return &s.fsdp.offload; }, one_of("none params"),
     "", "score", optional, Mark::told,
     "params: on cuda keep each rank's part of the weights in host memory and copy it up one unit "
     "ahead of its gather; refused on the host, where it is already. Changes no bit."},

    {"comm.transport", [](Sections& s) -> Field { return &s.comm.transport; },
     one_of("auto mpi shared nccl"), "", "all", optional, Mark::told,
     "How gathers move. cuda: nccl. host: mpi, or shared (the ranks of one node read each "
     "other's shards in place). auto: nccl on cuda; on the host shared if all ranks of the "
     "shard group are on one node and comm.link_rate is 0, else mpi."},
    {"comm.timeout", [](Sections& s) -> Field { return &s.comm.timeout_s; },
     duration(1e-3, 31536000), "s", "all", optional, Mark::free,
     "A collective that takes longer ends the job and names the ranks that did not arrive. "
     "Reading and writing files is ended when no rank has moved a byte for this long."},
    {"comm.link_rate", [](Sections& s) -> Field { return &s.comm.link_rate_bytes_per_s; },
     byte_rate(1e3, 1e13), "bytes/s", "score", optional, Mark::told,
     "Slow every gather to this rate, to study overlap on a machine without a network; 0: "
     "off. Recorded as an emulation wherever figures are shown. The emulated time does not "
     "count towards comm.timeout."},

    {"batch.tokens", [](Sections& s) -> Field { return &s.batch.tokens; }, whole(1, most_int),
     "tokens", "score", optional, Mark::identity,
     "Tokens of each rank and step. Whole documents are packed and none is padded; a longer "
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

    {"output.file", [](Sections& s) -> Field { return &s.output.file; }, path(), "", "all",
     required, Mark::free, "Results file."},
    {"output.existing", [](Sections& s) -> Field { return &s.output.existing; },
     one_of("refuse replace resume"), "", "all", optional, Mark::free,
     "What to do if the results file exists. resume: go on with what an interrupted run left in "
     "FILE.part, on any number of ranks; refused if tokens, weights or a key that can change a "
     "score differ. Without such a file, an ordinary run."},
    {"output.flush_every", [](Sections& s) -> Field { return &s.output.flush_every_s; },
     duration(1e-3, 31536000), "s", "score", optional, Mark::free,
     "Bring results to disk this often: what a killed run may lose."},
    {"output.timeline", [](Sections& s) -> Field { return &s.output.timeline; }, boolean(), "",
     "score", optional, Mark::told, "Record the spans of gathers and computes."},
    {"output.timeline_passes", [](Sections& s) -> Field { return &s.output.timeline_passes; },
     whole(2, most_int), "passes", "score", optional, Mark::told,
     "The spans of the first and last half of this many passes are kept; figures cover every "
     "pass."},
    {"output.require", [](Sections& s) -> Field { return &s.output.require; },
     one_of("none observed"), "", "score", optional, Mark::free,
     "observed: exit status 3 unless the clock has witnessed that gathers ran ahead; refused "
     "at the start where that could not be."},
    {"output.log", [](Sections& s) -> Field { return &s.output.log; }, path_or_none(), "", "all",
     optional, Mark::free, "Progress as JSON lines in this file, one object a line; empty: none."},
    {"output.environment", [](Sections& s) -> Field { return &s.output.environment; },
     one_of("warn strict"), "", "all", optional, Mark::free,
     "What to do about an environment variable that overrides or defeats a key: tell it, or refuse "
     "the job with all of them."},
};

} // namespace

std::span<const Row> table() { return rows; }

const Row* find_row(std::string_view key) {
    const Row* end = std::end(rows);
    const Row* row =
        std::find_if(std::begin(rows), end, [&](const Row& r) { return r.key == key; });
    return row == end ? nullptr : row;
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
            infos.push_back({std::string(row.key), described(row.rule), std::string(row.unit),
                             std::string(row.jobs), written(row.rule, row.field(defaults)),
                             row.presence == Presence::required, row.mark, std::string(row.help)});
        }
        return infos;
    }();
    return keys;
}

} // namespace foregather::deck
