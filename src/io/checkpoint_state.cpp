// SPDX-License-Identifier: Apache-2.0
// Columns, attributes and lines. What a state must hold is decided by checkpoint_file.hpp.
#include "checkpoint_state.hpp"

#include <array>
#include <sstream>

#include "checksums.hpp"
#include "input_checks.hpp"

namespace foregather::io {

namespace {

constexpr base::Status refused = base::Status::refused;

struct Count {
    const char* name;
    std::int64_t TrainingState::*value;
};
constexpr std::array<Count, 6> counts{{{"step", &TrainingState::step},
                                       {"updates", &TrainingState::updates},
                                       {"bad_steps", &TrainingState::bad_steps},
                                       {"epoch", &TrainingState::epoch},
                                       {"place", &TrainingState::place},
                                       {"seed", &TrainingState::seed}}};

template <class T>
std::vector<T> read_column(const File& file, const std::string& path, const std::string& column,
                           H5T_class_t wanted, std::int64_t file_bytes) {
    const std::string name = path + ": /" + column;
    const Dataset dataset = open_input_dataset(file, path, column, file_bytes);
    const Type type(check(H5Dget_type(dataset.handle()), "read the type of " + name, refused));
    const base::Shape shape = shape_of(dataset, name);
    if (H5Tget_class(type.handle()) != wanted || shape.size() != 1) {
        base::refuse(name + " must be a column of " +
                     (wanted == H5T_FLOAT ? "floating-point numbers" : "integers") +
                     ", but has type " + type_in_words(type.handle()));
    }
    refuse_if_broken(dataset, name, "");
    std::vector<T> values(static_cast<std::size_t>(shape[0]));
    read_range(dataset, 0, base::View<T>(values), name);
    return values;
}

std::vector<std::pair<std::string, std::string>> lines_of(const std::string& text,
                                                          const std::string& name) {
    std::vector<std::pair<std::string, std::string>> settings;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        const std::size_t at = line.find(" = ");
        if (at == std::string::npos) {
            base::refuse(name + " has a line without \" = \": " + line);
        }
        settings.emplace_back(line.substr(0, at), line.substr(at + 3));
    }
    return settings;
}

} // namespace

std::vector<Table> tables_of(const TrainingState& state) {
    const LossHistory& h = state.history;
    Table table{
        "/train",
        {{"step", "1", "number of the step, from 1", h.step},
         {"loss", "nat", "mean negative log-probability of the step's tokens", h.loss},
         {"gradient_norm", "1", "global norm of the gradient, before clipping", h.gradient_norm},
         {"learning_rate", "1", "learning rate of the step", h.learning_rate},
         {"tokens", "token", "tokens that the step was trained on", h.tokens}},
        {},
        "step"};
    for (const Count& count : counts) {
        table.attributes.emplace_back(count.name, state.*count.value);
    }
    const EvaluationHistory& e = state.evaluations;
    return {std::move(table),
            {"/evaluation",
             {{"step", "1", "steps that were taken before the evaluation", e.step},
              {"loss", "nat", "mean negative log-probability of what was evaluated on", e.loss},
              {"tokens", "token", "tokens that were scored", e.tokens}},
             {},
             "evaluation"}};
}

Text settings_of(const TrainingState& state) {
    Text text{"/train/settings", ""};
    for (const auto& [key, value] : state.settings) {
        if ((key + value).find('\n') != std::string::npos) {
            base::fail("setting " + key + " has more than one line");
        }
        text.text += key + " = " + value + "\n";
    }
    return text;
}

TrainingState read_state(const File& file, const std::string& path, std::int64_t file_bytes) {
    if (const std::string problem = link_problem(file.handle(), "train"); !problem.empty()) {
        base::refuse(path + " is a weights file, but no checkpoint: /train " + problem);
    }
    const std::string name = path + ": /train";
    const Group group(
        check(H5Gopen2(file.handle(), "train", H5P_DEFAULT), "open group " + name, refused));
    TrainingState state;
    for (const Count& count : counts) {
        const auto value = integer_attribute(group.handle(), count.name, name);
        if (!value || (*value < 0 && count.value != &TrainingState::seed)) {
            base::refuse(name + (value ? " has a negative attribute " : " has no attribute ") +
                         count.name);
        }
        state.*count.value = *value;
    }
    LossHistory& h = state.history;
    h.step = read_column<std::int64_t>(file, path, "train/step", H5T_INTEGER, file_bytes);
    h.loss = read_column<double>(file, path, "train/loss", H5T_FLOAT, file_bytes);
    h.gradient_norm = read_column<double>(file, path, "train/gradient_norm", H5T_FLOAT, file_bytes);
    h.learning_rate = read_column<double>(file, path, "train/learning_rate", H5T_FLOAT, file_bytes);
    h.tokens = read_column<std::int64_t>(file, path, "train/tokens", H5T_INTEGER, file_bytes);
    const std::size_t rows = h.step.size();
    if (h.loss.size() != rows || h.gradient_norm.size() != rows || h.learning_rate.size() != rows ||
        h.tokens.size() != rows) {
        base::refuse(name + " has columns of different lengths");
    }
    EvaluationHistory& e = state.evaluations;
    e.step = read_column<std::int64_t>(file, path, "evaluation/step", H5T_INTEGER, file_bytes);
    e.loss = read_column<double>(file, path, "evaluation/loss", H5T_FLOAT, file_bytes);
    e.tokens = read_column<std::int64_t>(file, path, "evaluation/tokens", H5T_INTEGER, file_bytes);
    if (e.loss.size() != e.step.size() || e.tokens.size() != e.step.size()) {
        base::refuse(path + ": /evaluation has columns of different lengths");
    }
    const Dataset settings = open_input_dataset(file, path, "train/settings", file_bytes);
    refuse_if_broken(settings, name + "/settings", "");
    state.settings = lines_of(read_text(settings, name + "/settings"), name + "/settings");
    return state;
}

} // namespace foregather::io
