// SPDX-License-Identifier: Apache-2.0
// Deck, versions, hosts, environment, inputs, choices.
#include "provenance.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>

#include <foregather/base/printable.hpp>

#include "version.hpp"

namespace foregather::job {
namespace {

using Strings = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;

std::string utc(std::time_t time) {
    std::tm parts{};
    std::array<char, 32> text{};
    if (gmtime_r(&time, &parts) == nullptr ||
        std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        return "unknown";
    }
    return text.data();
}

io::Table versions_table() {
    Strings names;
    Strings values;
    for (const Version& v : versions()) {
        names.push_back(v.name);
        values.push_back(v.value);
    }
    return {"/provenance/versions",
            {{"name", "", "component", names}, {"version", "", "its version", values}},
            {},
            "component"};
}

io::Table hosts_table(const mesh::Topology& topology, const std::vector<std::string>& devices) {
    Integers rank;
    Integers node;
    Integers local;
    Integers cores;
    Strings host;
    for (const mesh::RankPlace& place : topology.places()) {
        rank.push_back(place.rank);
        host.push_back(place.host);
        node.push_back(place.node);
        local.push_back(place.local_rank);
        cores.push_back(place.cores);
    }
    return {"/provenance/hosts",
            {{"rank", "1", "rank", rank},
             {"host", "", "host name", host},
             {"node", "1", "number of the node", node},
             {"local_rank", "1", "rank within the node", local},
             {"cores", "1", "cores in the rank's affinity mask", cores},
             {"device", "", "what computes: its name, and the address of one with its own memory",
              devices}},
            {},
            "rank"};
}

io::Table environment_table() {
    constexpr std::array<const char*, 22> prefixes = {
        "NCCL_", "CUDA_",     "CUBLAS_", "NVIDIA_", "OMPI_",  "PMIX_",  "PMI_",  "MPICH_",
        "MPIR_", "HYDRA_",    "UCX_",    "FI_",     "ROMIO_", "SLURM_", "HDF5_", "OMP_",
        "GOMP_", "OPENBLAS_", "GOTO_",   "BLIS_",   "MKL_",   "ONEDNN_"};
    Strings names;
    Strings values;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string text = *variable;
        for (const char* prefix : prefixes) {
            if (text.starts_with(prefix)) {
                const auto equals = text.find('=');
                names.push_back(base::printable(text.substr(0, equals), text.size()));
                values.push_back(equals == std::string::npos
                                     ? ""
                                     : base::printable(text.substr(equals + 1), text.size()));
            }
        }
    }
    return {"/provenance/environment",
            {{"name", "", "variable of rank 0's environment", names},
             {"value", "", "its value", values}},
            {},
            "variable"};
}

io::Table inputs_table(const std::vector<InputRow>& rows) {
    Strings paths;
    Integers bytes;
    Strings modified;
    Strings digests;
    Strings verified;
    for (const InputRow& row : rows) {
        paths.push_back(row.path);
        bytes.push_back(row.bytes);
        modified.push_back(row.modified);
        digests.push_back(row.sha256);
        verified.push_back(row.verified);
    }
    return {"/provenance/inputs",
            {{"path", "", "input", paths},
             {"bytes", "byte", "size", bytes},
             {"modified", "", "time of last change, UTC", modified},
             {"sha256", "",
              "of the weights' content as import wrote it; of the token file; of /config", digests},
             {"verified", "", "what was compared with checksums in the file", verified}},
            {},
            "input"};
}

} // namespace

std::string command_line(const Start& start) {
    std::string command;
    for (const std::string& word : start.command_line) {
        command += (command.empty() ? "" : " ") + word;
    }
    return command;
}

io::RunStart run_start(const Start& start, int ranks, std::int64_t packs_before,
                       std::int64_t steps_before) {
    return {utc(start.started_unix_s), ranks, packs_before, command_line(start), steps_before};
}

InputRow input_row(const std::string& path, const std::string& sha256,
                   const std::string& verified) {
    struct stat facts {};
    const bool there = stat(path.c_str(), &facts) == 0;
    return {path, there ? facts.st_size : -1, there ? utc(facts.st_mtime) : "unknown", sha256,
            verified};
}

InputRow text_row(const InputRow& file, const std::string& name, const std::string& text,
                  bool sealed) {
    return {file.path + ":" + name, std::ssize(text), file.modified, io::sha256_of_text(text),
            sealed ? name : ""};
}

std::vector<InputRow> input_rows(const Inputs& inputs) {
    const InputRow weights = input_row(inputs.weights->path(), inputs.weights->content_sha256());
    return {weights,
            input_row(inputs.tokens->path(), inputs.tokens_sha256, inputs.tokens->sealed()),
            text_row(weights, "/config", inputs.weights->config_json(),
                     inputs.weights->config_sealed())};
}

io::Text effective_text(const deck::Deck& deck, const Became& became) {
    return {"/provenance/deck_effective", deck.effective_text(became)};
}

std::vector<io::Text> resumed_texts(const deck::Deck& deck, const Start& start,
                                    const Became& became) {
    return {{"/provenance/resumed_deck_text", deck.text()},
            {"/provenance/resumed_deck_effective", deck.effective_text(became)},
            {"/provenance/resumed_started", utc(start.started_unix_s)}};
}

std::vector<io::Text> provenance_texts(const deck::Deck& deck, const Start& start,
                                       const Became& became) {
    return {{"/provenance/deck_text", deck.text()},
            effective_text(deck, became),
            {"/provenance/command_line", command_line(start)},
            {"/provenance/started", utc(start.started_unix_s)}};
}

std::vector<io::Table> provenance_tables(const std::vector<InputRow>& inputs,
                                         const mesh::Topology& topology,
                                         const std::vector<std::string>& devices) {
    return {versions_table(), hosts_table(topology, devices), environment_table(),
            inputs_table(inputs)};
}

io::Text finished_text() {
    return {"/provenance/finished",
            utc(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()))};
}

io::Table ledger_table(const deck::Ledger& ledger) {
    std::array<Strings, 7> columns;
    for (const deck::Ledger::Row& row : ledger.rows()) {
        const std::array<std::string, 7> cells = {
            row.key, row.value, row.default_text, row.origin, row.state, row.observed, row.reason};
        for (std::size_t i = 0; i < cells.size(); ++i) {
            columns[i].push_back(cells[i]);
        }
    }
    return {"/provenance/deck",
            {{"key", "", "section.key", columns[0]},
             {"value", "", "as given, or the default", columns[1]},
             {"default", "", "the default", columns[2]},
             {"origin", "", "default, deck or command line", columns[3]},
             {"state", "", "honoured, clamped, inert or not honoured", columns[4]},
             {"observed", "", "what was measured where the key acts", columns[5]},
             {"reason", "", "why, where the state is not honoured as given", columns[6]}},
            {},
            "key"};
}

io::Table choices_table(const std::vector<std::array<std::string, 3>>& name_value_why) {
    std::array<Strings, 3> columns;
    for (const auto& row : name_value_why) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            columns[i].push_back(row[i]);
        }
    }
    return {"/provenance/choices",
            {{"name", "", "what the program chose or was left to default", columns[0]},
             {"value", "", "what it became", columns[1]},
             {"why", "", "reason", columns[2]}},
            {},
            "choice"};
}

} // namespace foregather::job
