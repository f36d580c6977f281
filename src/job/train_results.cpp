// SPDX-License-Identifier: Apache-2.0
// Counting, telling, taking over.
#include "train_results.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace foregather::job {
namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b, std::size_t n) {
    return n == 0 || std::memcmp(a.data(), b.data(), n * sizeof(T)) == 0; // also of NaN
}

// Do both tell the same of the steps that both have?
bool agree(const io::LossHistory& a, const io::LossHistory& b) {
    const std::size_t n = std::min(a.step.size(), b.step.size());
    return n > 0 && same_bits(a.step, b.step, n) && same_bits(a.loss, b.loss, n) &&
           same_bits(a.gradient_norm, b.gradient_norm, n) &&
           same_bits(a.learning_rate, b.learning_rate, n) && same_bits(a.tokens, b.tokens, n);
}

} // namespace

ItemPlan plan_items(DataOrder& order, std::int64_t steps, std::int64_t most_rows) {
    ItemPlan plan{{0}};
    Position at;
    for (std::int64_t step = 0; step < steps; ++step) {
        const Batch batch = order.batch(at);
        plan.first.push_back(plan.first.back() + std::ssize(batch.items));
        if (plan.first.back() > most_rows) {
            return {};
        }
        at = batch.after;
    }
    return plan;
}

io::ItemRows item_rows(const Items& items, const Batch& batch, std::int64_t step) {
    io::ItemRows rows;
    for (const std::int64_t i : batch.items) {
        const Item& item = items.items[static_cast<std::size_t>(i)];
        rows.step.push_back(step);
        rows.document.push_back(item.document);
        rows.window.push_back(item.window);
    }
    return rows;
}

std::string write_before(io::ResultsFile& file, const io::TrainingState& state, DataOrder& order,
                         const Items& items, const ItemPlan& plan) {
    file.write_steps(0, state.history);
    file.write_evaluations(0, state.evaluations);
    if (!plan.stored()) {
        return "";
    }
    io::ItemRows before;
    Position at;
    for (std::int64_t step = 1; step <= state.step; ++step) {
        const Batch batch = order.batch(at);
        const io::ItemRows rows = item_rows(items, batch, step);
        before.step.insert(before.step.end(), rows.step.begin(), rows.step.end());
        before.document.insert(before.document.end(), rows.document.begin(), rows.document.end());
        before.window.insert(before.window.end(), rows.window.begin(), rows.window.end());
        at = batch.after;
    }
    if (at != Position{state.epoch, state.place}) {
        return "which items the steps before this start took is not in /train/items: they were "
               "taken in another order";
    }
    file.write_items(0, before);
    return "";
}

std::vector<io::RunStart> earlier_starts(const io::Output& output, const io::LossHistory& history) {
    for (const std::string& path : {io::part_path(output.path), output.path}) {
        if (!std::filesystem::exists(path)) {
            continue;
        }
        io::Earlier earlier = io::read_earlier(path);
        if (earlier.unusable.empty() && agree(earlier.steps, history)) {
            return std::move(earlier.starts);
        }
    }
    return {};
}

} // namespace foregather::job
