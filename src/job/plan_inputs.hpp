// SPDX-License-Identifier: Apache-2.0
// The model that is planned for, and the settings that a deck asks for: whatever can be refused is
// refused here.
#pragma once

#include <string>
#include <vector>

#include <foregather/backend/backend.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/config.hpp>

namespace foregather::job {

struct PlannedModel {
    model::ModelConfig config;
    model::Chain chain;
    bool trains = true;
    bool config_sealed = false; // it was compared with a checksum
    std::string path, config_json;
    std::vector<std::string> notes; // what the user should be told
};

// Opens plan.model: a weights file, whose config and list of tensors alone are read, or a
// config.json. Not collective. Throws Error(refused).
PlannedModel open_planned_model(const deck::Deck& deck);

// Throws Error(refused) where one of plan.shards does not divide one of plan.ranks.
void refuse_uneven_shards(const deck::Deck& deck);
// plan.shards; 0 alone where it is empty.
std::vector<std::int64_t> shards_of(const deck::PlanSection& plan);

// The type of gathered weights: fsdp.param_dtype; auto is bf16 on cuda, fp32 on the host.
base::DType planned_type(const deck::Deck& deck);

// plan.document, or the whole pack; no longer than the pack, or the model's positions.
base::Elements document_of(const deck::PlanSection& plan, const model::ModelConfig& config,
                           base::Elements tokens);

} // namespace foregather::job
