// SPDX-License-Identifier: Apache-2.0
// Lays out /train and /evaluation before a run, as many rows as it will have.
// Who writes them is decided by results_file.cpp.
#include "train_layout.hpp"

#include <array>
#include <bit>
#include <limits>

#include <foregather/base/error.hpp>

namespace foregather::io {

namespace {

namespace path {
constexpr const char* step = "/train/step";
constexpr const char* loss = "/train/loss";
constexpr const char* norm = "/train/gradient_norm";
constexpr const char* rate = "/train/learning_rate";
constexpr const char* tokens = "/train/tokens";
constexpr const char* item_step = "/train/items/step";
constexpr const char* document = "/train/items/document";
constexpr const char* window = "/train/items/window";
constexpr const char* evaluation_step = "/evaluation/step";
constexpr const char* evaluation_loss = "/evaluation/loss";
constexpr const char* evaluation_tokens = "/evaluation/tokens";
} // namespace path

Layout integers(const char* where, std::int64_t rows, const char* units, const char* long_name,
                const char* label) {
    const auto none = std::bit_cast<std::array<std::byte, sizeof(std::int64_t)>>(std::int64_t{-1});
    return {where,
            H5T_STD_I64LE,
            {rows},
            units,
            std::string(long_name) + "; -1 where not run",
            {label},
            {none.begin(), none.end()}};
}

Layout reals(const char* where, std::int64_t rows, const char* units, const char* long_name,
             const char* label) {
    const auto none = std::bit_cast<std::array<std::byte, sizeof(double)>>(
        std::numeric_limits<double>::quiet_NaN());
    return {where,
            H5T_IEEE_F64LE,
            {rows},
            units,
            std::string(long_name) + "; NaN where not run",
            {label},
            {none.begin(), none.end()}};
}

std::vector<Layout> layouts_of(const TrainLayout& train) {
    const std::int64_t n = train.steps, e = train.evaluations, i = train.items;
    std::vector<Layout> layouts = {
        integers(path::step, n, "1", "number of the step, from 1", "step"),
        reals(path::loss, n, "nat",
              "mean negative log-probability of the step's targets, over all ranks, before the "
              "update; where it or the norm is not finite the step was not applied",
              "step"),
        reals(path::norm, n, "1", "global norm of the gradient, before clipping", "step"),
        reals(path::rate, n, "1", "learning rate of the step", "step"),
        integers(path::tokens, n, "token", "targets of the step, over all ranks", "step"),
        integers(path::evaluation_step, e, "1", "steps that were taken before the evaluation",
                 "evaluation"),
        reals(path::evaluation_loss, e, "nat",
              "mean negative log-probability of the tokens of train.evaluate", "evaluation"),
        integers(path::evaluation_tokens, e, "token", "tokens that were scored", "evaluation")};
    if (i > 0) {
        layouts.push_back(integers(path::item_step, i, "1", "step that took the item", "item"));
        layouts.push_back(integers(path::document, i, "1",
                                   "document of the token file that the step took", "item"));
        layouts.push_back(integers(path::window, i, "1",
                                   "which window of the document, 0 where it is whole", "item"));
    }
    return layouts;
}

std::int64_t stored_bytes(const Layout& layout) {
    return base::elements_of(layout.shape) * static_cast<std::int64_t>(H5Tget_size(layout.type));
}

bool there(const File& file, const std::string& where) {
    for (std::size_t end = where.find('/', 1); end <= where.size();
         end = where.find('/', end + 1)) {
        const std::string part = where.substr(0, end);
        if (check(H5Lexists(file.handle(), part.c_str(), H5P_DEFAULT), "look for " + part) == 0) {
            return false;
        }
    }
    return true;
}

Dataset open(const File& file, const std::string& where) {
    return Dataset(check(H5Dopen2(file.handle(), where.c_str(), H5P_DEFAULT), "open " + where));
}

template <class T>
std::vector<T> all_of(const File& file, const char* where) {
    const Dataset dataset = open(file, where);
    std::vector<T> values(static_cast<std::size_t>(base::elements_of(shape_of(dataset, where))));
    read_range(dataset, 0, base::View<T>(values), where);
    return values;
}

} // namespace

base::Bytes bytes_of(const TrainLayout& train) {
    std::int64_t bytes = 0;
    for (const Layout& layout : layouts_of(train)) {
        bytes += stored_bytes(layout);
    }
    return {bytes};
}

std::int64_t lay_out(const File& file, const TrainLayout& train) {
    for (const Layout& layout : layouts_of(train)) {
        const Dataset created = create_dataset(file, layout);
    }
    return bytes_of(train).count;
}

TrainDatasets::TrainDatasets(const File& file, std::string name, std::int64_t piece_bytes)
    : name_(std::move(name)), piece_bytes_(piece_bytes) {
    for (const Layout& layout : layouts_of({1, 1, 1})) {
        if (there(file, layout.path)) {
            columns_.push_back({layout.path, open(file, layout.path)});
        }
    }
}

template <class T>
std::int64_t TrainDatasets::put(const char* where, std::int64_t first, const std::vector<T>& values,
                                std::size_t rows) const {
    const std::string full = name_ + ": " + where;
    for (const Column& column : columns_) {
        if (column.path != where) {
            continue;
        }
        const std::int64_t all = shape_of(column.dataset, full)[0];
        if (values.size() != rows || first < 0 || first + std::ssize(values) > all) {
            base::fail(full + " has " + std::to_string(all) + " rows and no place for " +
                       std::to_string(values.size()) + " from row " + std::to_string(first));
        }
        write_range(column.dataset, first, base::View<const T>(values), full, piece_bytes_);
        return static_cast<std::int64_t>(rows * sizeof(T));
    }
    base::fail(full + " was not laid out");
}

std::int64_t TrainDatasets::write(std::int64_t first, const LossHistory& rows) const {
    const std::size_t n = rows.step.size();
    // The number of the step last: a row that has it is whole.
    return put(path::loss, first, rows.loss, n) + put(path::norm, first, rows.gradient_norm, n) +
           put(path::rate, first, rows.learning_rate, n) +
           put(path::tokens, first, rows.tokens, n) + put(path::step, first, rows.step, n);
}

std::int64_t TrainDatasets::write(std::int64_t first, const EvaluationHistory& rows) const {
    const std::size_t n = rows.step.size();
    return put(path::evaluation_loss, first, rows.loss, n) +
           put(path::evaluation_tokens, first, rows.tokens, n) +
           put(path::evaluation_step, first, rows.step, n);
}

std::int64_t TrainDatasets::write(std::int64_t first, const ItemRows& rows) const {
    const std::size_t n = rows.step.size();
    return put(path::document, first, rows.document, n) + put(path::window, first, rows.window, n) +
           put(path::item_step, first, rows.step, n);
}

LossHistory read_steps(const File& file) {
    LossHistory run;
    if (!there(file, path::step)) {
        return run;
    }
    const LossHistory all{all_of<std::int64_t>(file, path::step), all_of<double>(file, path::loss),
                          all_of<double>(file, path::norm), all_of<double>(file, path::rate),
                          all_of<std::int64_t>(file, path::tokens)};
    for (std::size_t i = 0; i < all.step.size() && all.step[i] >= 0; ++i) {
        run.step.push_back(all.step[i]);
        run.loss.push_back(all.loss.at(i));
        run.gradient_norm.push_back(all.gradient_norm.at(i));
        run.learning_rate.push_back(all.learning_rate.at(i));
        run.tokens.push_back(all.tokens.at(i));
    }
    return run;
}

} // namespace foregather::io
