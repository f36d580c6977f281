// SPDX-License-Identifier: Apache-2.0
// Reads back what results_file.cpp and the job have laid out. A file of another layout, or one that
// HDF5 cannot open, is unusable, with the reason.
#include <foregather/io/earlier.hpp>

#include <algorithm>
#include <optional>

#include <foregather/io/columns.hpp>
#include <foregather/io/input_file.hpp>

#include "score_layout.hpp"
#include "train_layout.hpp"

namespace foregather::io {

namespace {

constexpr const char* starts_path = "/provenance/starts";
constexpr const char* identity_path = "/provenance/identity";
constexpr std::size_t time_bytes = 24, command_bytes = 488;

Dataset open_column(const File& file, const std::string& path) {
    return Dataset(check(H5Dopen2(file.handle(), path.c_str(), H5P_DEFAULT), "open " + path));
}

bool there(const File& file, const char* path) {
    return check(H5Lexists(file.handle(), path, H5P_DEFAULT), std::string("look for ") + path) > 0;
}

void read_starts(const File& file, Earlier& earlier) {
    const std::string table = starts_path;
    const auto started = strings_of(file, table + "/started");
    const auto ranks = numbers_of<std::int64_t>(file, table + "/ranks");
    const auto packs = numbers_of<std::int64_t>(file, table + "/packs_before");
    const auto commands = strings_of(file, table + "/command_line");
    const auto steps = numbers_of<std::int64_t>(file, table + "/steps_before");
    for (std::size_t i = 0; i < started.size() && !started[i].empty(); ++i) {
        earlier.starts.push_back(
            {started[i], ranks.at(i), packs.at(i), commands.at(i), steps.at(i)});
    }
}

void read_identity(const File& file, Earlier& earlier) {
    const std::string table = identity_path;
    const auto names = strings_of(file, table + "/name");
    const auto values = strings_of(file, table + "/value");
    const auto told = numbers_of<std::uint8_t>(file, table + "/told");
    for (std::size_t i = 0; i < names.size(); ++i) {
        earlier.identity.push_back({names[i], values.at(i), told.at(i) != 0});
    }
}

void read_end(const File& file, const std::string& path, Earlier& earlier) {
    const Group score(check(H5Gopen2(file.handle(), "/score", H5P_DEFAULT), "open group /score"));
    earlier.not_finite_documents =
        integer_attribute(score.handle(), "not_finite_documents", path + ": /score").value_or(0);
    const auto keys = strings_of(file, "/provenance/deck/key");
    const auto states = strings_of(file, "/provenance/deck/state");
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (states.at(i) == "not honoured") {
            earlier.not_honoured.push_back(keys[i]);
        }
    }
    earlier.verdict = strings_of(file, "/timing/prefetch/verdict").at(0);
}

void read_all(const File& file, const std::string& path, Earlier& earlier) {
    if (text_attribute(file.handle(), "format", path).value_or("") != "foregather.results") {
        earlier.unusable = "it is no results file";
        earlier.foreign = true;
        return;
    }
    earlier.complete = integer_attribute(file.handle(), "complete", path).value_or(0) == 1;
    if (there(file, score_path::packs_done)) {
        earlier.packs_done = numbers_of<std::uint8_t>(file, score_path::packs_done);
    }
    earlier.steps = read_steps(file);
    if (there(file, identity_path)) {
        read_identity(file, earlier);
    }
    read_starts(file, earlier);
    if (earlier.complete && there(file, "/score")) {
        read_end(file, path, earlier);
    }
}

// The first bytes of a text, with what is left of its place filled with nulls.
std::string fitted(const std::string& text, std::size_t bytes) {
    std::string result = text;
    result.resize(bytes, '\0');
    return result;
}

Table table_of(const char* path, const std::vector<RunStart>& starts, std::size_t rows) {
    std::vector<std::string> started, commands;
    std::vector<std::int64_t> ranks, packs, steps;
    for (std::size_t i = 0; i < rows; ++i) {
        const RunStart& start = i < starts.size() ? starts[i] : RunStart{};
        started.push_back(fitted(start.started, time_bytes));
        ranks.push_back(start.ranks);
        packs.push_back(start.packs_before);
        steps.push_back(start.steps_before);
        commands.push_back(fitted(start.command_line, command_bytes));
    }
    return {path,
            {{"started", "", "when a start of this run began, UTC; empty: no such start", started},
             {"ranks", "1", "its ranks", ranks},
             {"packs_before", "1", "packs whose scores were in the file already", packs},
             {"steps_before", "1", "steps of training that were taken already", steps},
             {"command_line", "", "its command line, cut to its first bytes", commands}},
            {},
            "start"};
}

void write_string(const File& file, const char* column, std::int64_t row, const std::string& text,
                  std::size_t bytes) {
    const std::string path = std::string(starts_path) + "/" + column;
    const Dataset dataset = open_column(file, path);
    const std::string value = fitted(text, bytes);
    write_block(dataset, string_type(bytes).handle(), {{row}, {1}},
                reinterpret_cast<const std::byte*>(value.data()), path);
}

void write_number(const File& file, const char* column, std::int64_t row, std::int64_t value) {
    const std::string path = std::string(starts_path) + "/" + column;
    write_range(open_column(file, path), row, base::View<const std::int64_t>(&value, 1), path);
}

} // namespace

Earlier read_earlier(const std::string& path) {
    Earlier earlier;
    std::optional<InputFile> input;
    try {
        input.emplace(path, "results file");
        read_all(input->file(), path, earlier);
    } catch (const std::exception& error) {
        earlier = Earlier{};
        earlier.unusable = error.what();
    }
    if (input) { // what somebody else writes is not for this run to judge, still less to replace
        input->read([] {});
    }
    return earlier;
}

Table starts_table(const std::vector<RunStart>& starts) {
    std::vector<RunStart> kept = starts;
    if (std::ssize(kept) > most_starts) {
        kept.resize(most_starts);
        kept.back() = starts.back();
    }
    return table_of(starts_path, kept, most_starts);
}

Table runs_table(const std::vector<RunStart>& starts) {
    return table_of("/provenance/runs", starts, starts.size());
}

Table identity_table(const std::vector<IdentityRow>& rows) {
    std::vector<std::string> names, values;
    std::vector<std::uint8_t> told;
    for (const IdentityRow& row : rows) {
        names.push_back(row.name);
        values.push_back(row.value);
        told.push_back(row.told ? 1 : 0);
    }
    return {identity_path,
            {{"name", "", "what a run that goes on with this file is compared by", names},
             {"value", "", "what it was at the first start", values},
             {"told", "1", "1: a change is told; 0: it is refused", told}},
            {},
            "entry"};
}

void write_start(const File& file, std::int64_t row, const RunStart& start) {
    const std::int64_t at = std::min(row, most_starts - 1);
    write_number(file, "ranks", at, start.ranks);
    write_number(file, "packs_before", at, start.packs_before);
    write_number(file, "steps_before", at, start.steps_before);
    write_string(file, "command_line", at, start.command_line, command_bytes);
    write_string(file, "started", at, start.started, time_bytes);
}

} // namespace foregather::io
