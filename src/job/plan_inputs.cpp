// SPDX-License-Identifier: Apache-2.0
// Opening the model, refusing settings.
#include "plan_inputs.hpp"

#include <algorithm>
#include <fstream>

#include <foregather/base/error.hpp>

#include "model_files.hpp"
#include "report_parts.hpp"

namespace foregather::job {
namespace {

// HDF5 files begin with these bytes (HDF5 File Format Specification, III.A).
bool is_hdf5(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string begin(4, '\0');
    file.read(begin.data(), std::ssize(begin));
    return file && begin == "\x89HDF";
}

} // namespace

PlannedModel open_planned_model(const deck::Deck& deck) {
    const deck::Sections& s = deck.sections();
    PlannedModel planned;
    planned.path = s.plan.model;
    planned.trains = s.plan.job == "train";
    const std::string place = deck.where("plan.model");
    try {
        if (is_hdf5(planned.path)) {
            OpenedWeights opened = open_weights(planned.path);
            planned.config_json = opened.file->config_json();
            planned.config_sealed = opened.file->config_sealed();
            planned.config = std::move(opened.config);
        } else {
            planned.config_json = read_config(planned.path);
            planned.config = config_without_weights(planned.config_json, planned.path);
        }
    } catch (const base::Error& error) {
        throw base::Error(error.status(), place + ": " + error.what());
    }
    planned.notes = planned.config.notes;
    planned.chain = model::make_chain(planned.config, s.fsdp.piece_bytes);
    const auto longest = std::max_element(s.plan.tokens.begin(), s.plan.tokens.end());
    if (s.plan.document > planned.config.positions) {
        refuse_beyond(deck, "plan.document", s.plan.document,
                      "the model has " +
                          counted(planned.config.positions, "position", "positions"));
    }
    if (s.plan.document == 0 && *longest > planned.config.positions) {
        planned.notes.push_back("the model has " +
                                counted(planned.config.positions, "position", "positions") +
                                ": longer packs are documents of so many tokens");
    }
    return planned;
}

std::vector<std::int64_t> shards_of(const deck::PlanSection& plan) {
    return plan.shards.empty() ? std::vector<std::int64_t>{0} : plan.shards;
}

void refuse_uneven_shards(const deck::Deck& deck) {
    for (const std::int64_t ranks : deck.sections().plan.ranks) {
        for (const std::int64_t shard : shards_of(deck.sections().plan)) {
            if (shard != 0 && (shard > ranks || ranks % shard != 0)) {
                base::refuse(deck.where("plan.shards") + ": " + std::to_string(shard) +
                             " does not divide the " + counted(ranks, "rank", "ranks") +
                             " of plan.ranks");
            }
        }
    }
}

base::DType planned_type(const deck::Deck& deck) {
    const std::string& asked = deck.sections().fsdp.param_dtype;
    const bool bf16 =
        asked == "bf16" || (asked == "auto" && deck.sections().machine.kind == "cuda");
    return bf16 ? base::DType::bf16 : base::DType::f32;
}

base::Elements document_of(const deck::PlanSection& plan, const model::ModelConfig& config,
                           base::Elements tokens) {
    return std::min({plan.document > 0 ? plan.document : tokens, tokens, config.positions});
}

} // namespace foregather::job
