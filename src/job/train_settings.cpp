// SPDX-License-Identifier: Apache-2.0
// Rows of a run, and which of them may change.
#include "train_settings.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>
#include <foregather/io/digest.hpp>
#include <foregather/shard/save.hpp>

#include "checkpoints.hpp"
#include "model_files.hpp"
#include "settle_train.hpp"

namespace foregather::job {
namespace {

// Keys that stand for themselves no longer: their content or what became of them is compared.
const std::vector<std::string> by_content = {"model.weights",   "model.config",
                                             "data.tokens",     "device.kind",
                                             "device.products", "fsdp.param_dtype"};

// Of the names that are no keys of the deck. A run may move to another machine, whose sums are
// rounded in another order, as it may to another number of ranks.
const std::vector<std::string> told_names = {"device", "products"};

bool may_change(const std::string& name) {
    for (const deck::KeyInfo& key : deck::known_keys()) {
        if (key.key == name) {
            return key.mark == deck::Mark::told;
        }
    }
    return name.starts_with("version of ") ||
           std::find(told_names.begin(), told_names.end(), name) != told_names.end();
}

std::vector<io::IdentityRow> rows_of(const Settings& settings) {
    std::vector<io::IdentityRow> rows;
    for (const auto& [name, value] : settings) {
        rows.push_back({name, value, may_change(name)});
    }
    return rows;
}

} // namespace

Settings train_settings(const deck::Deck& deck, const TrainInputs& inputs, const Machine& machine) {
    const deck::TrainSection& train = deck.sections().train;
    std::vector<io::IdentityRow> rows = {
        {"weights", inputs.weights
                        ? content_of(*inputs.weights, false)
                        : "random ones of config " + io::sha256_of_text(inputs.config_json)},
        {"tokens", "sha256 " + inputs.tokens_sha256},
        {"type of weights", machine.weights_type},
        {"device", machine.device},
        {"products", machine.products}};
    if (train.schedule != "constant") {
        rows.push_back(
            {"train.steps that train.schedule is laid out over", std::to_string(train.steps)});
    }
    std::vector<std::string> except = by_content;
    for (const InertKey& inert : inert_training_keys(deck.sections())) {
        except.push_back(inert.key);
    }
    add_keys(rows, deck, except);
    add_versions(rows);
    Settings settings;
    for (const io::IdentityRow& row : rows) {
        settings.emplace_back(row.name, row.value);
    }
    return settings;
}

std::string changed_settings(const Settings& stored, const Settings& now) {
    std::string text;
    for (const std::string& line : differences(rows_of(stored), rows_of(now), false)) {
        text += (text.empty() ? "" : "\n") + line;
    }
    return text;
}

std::vector<std::string> compare_with(const io::Checkpoint& checkpoint, const model::Chain& chain,
                                      const Settings& now) {
    const io::TrainingState& stored = checkpoint.state();
    refuse_other_tensors(checkpoint, shard::tensors_of(chain.units));
    if (const std::string changed = changed_settings(stored.settings, now); !changed.empty()) {
        base::refuse(checkpoint.path() +
                     " is of another run, which this deck does not go on with:\n" + changed +
                     "\nset these as they were, or name another checkpoint.directory; to begin a "
                     "new run with its weights give it as model.weights");
    }
    std::vector<std::string> told;
    for (const std::string& one : told_changes(stored.settings, now)) {
        told.push_back("since " + checkpoint.path() + ": " + one);
    }
    return told;
}

std::vector<std::string> told_changes(const Settings& stored, const Settings& now) {
    return differences(rows_of(stored), rows_of(now), true);
}

} // namespace foregather::job
