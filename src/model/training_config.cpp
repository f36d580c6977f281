// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that change nothing of what a model computes, but how it is trained.
#include <foregather/base/error.hpp>
#include <foregather/model/config.hpp>

#include "json.hpp"

namespace foregather::model {

TrainingConfig parse_training_config(const std::string& json, const std::string& file) {
    const Json config = parse_object(json, file);
    const Json dropout = value_or_null(config, "attention_dropout");
    if (!dropout.is_null() && dropout != 0) {
        base::refuse(file + ": attention_dropout: " + dropout.dump() +
                     " is not supported in training, only 0");
    }
    TrainingConfig result;
    const Json range = value_or_null(config, "initializer_range");
    if (range.is_null()) {
        result.notes.push_back("initializer_range is absent: 0.02 is taken");
    } else if (!is_number(range) || range.get<double>() <= 0) {
        base::refuse(file + ": initializer_range: " + range.dump() + " is not a number above 0");
    } else {
        result.initializer_range = range.get<double>();
    }
    return result;
}

} // namespace foregather::model
