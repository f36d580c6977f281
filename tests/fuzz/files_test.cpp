// SPDX-License-Identifier: Apache-2.0
// Token and weights files with bytes changed at random, read as a job reads them: what touches
// metadata or data that a digest covers is refused, and nothing crashes, hangs or is misread.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <foregather/io/digest.hpp>
#include <foregather/io/token_file.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/shard/load.hpp>

#include "../../src/job/model_files.hpp"
#include "coverage.hpp"
#include "trial.hpp"

namespace foregather::fuzz {

namespace {

// Made by tests/fuzz/inputs.py.
std::string input(const std::string& name) {
    const char* folder = std::getenv("FUZZ_INPUTS");
    if (folder == nullptr) {
        throw std::runtime_error("FUZZ_INPUTS names no folder");
    }
    return std::string(folder) + "/" + name;
}

std::string raw(const auto& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// All that is read of a token file, as one digest. Throws what reading throws.
std::string read_tokens(const std::string& path) {
    const io::TokenFile file(path);
    file.check_ids(4);
    std::string all = file.tokenizer_sha256() + file.content_sha256() + file.source() +
                      std::to_string(file.vocab_size()) + raw(file.offsets()) +
                      raw(file.read(0, file.tokens()));
    for (std::int64_t d = 0; d < file.documents(); ++d) {
        all += " " + std::to_string(file.score_from(d));
        all += " " + std::to_string(file.has_bytes() ? file.bytes(d) : 0);
    }
    if (file.has_ids()) {
        const io::Type type(io::check(H5Dget_type(file.ids().handle()), "read a type"));
        const std::size_t bytes = H5Tget_size(type.handle());
        std::vector<std::byte> ids(bytes * static_cast<std::size_t>(file.documents()));
        io::read_block(file.ids(), type.handle(), {{0}, {file.documents()}}, ids.data(), path);
        all += raw(ids);
    }
    return io::sha256_of_text(all);
}

// The same of a weights file: the manifest, the config, and every part of every unit at 2 ranks.
std::string read_weights(const std::string& path) {
    job::OpenedWeights opened = job::open_weights(path);
    io::WeightsFile& file = *opened.file;
    model::parse_training_config(file.config_json(), path);
    const model::Chain chain = model::make_chain(opened.config, base::Bytes{0});
    std::string all = file.config_json() + file.read_tokenizer() + file.tokenizer_sha256() +
                      file.content_sha256() + file.source();
    shard::Loader loader(file, base::Bytes{256});
    for (const shard::UnitSpec& unit : chain.units) {
        const shard::ShardLayout layout(unit.elements, 2);
        for (int rank = 0; rank < 2; ++rank) {
            std::vector<float> part(static_cast<std::size_t>(layout.per_rank()));
            shard::InPlace to{base::Slab(base::View<float>(part))};
            loader.load(unit, layout, rank, to);
            all += raw(part);
        }
    }
    return io::sha256_of_text(all);
}

// Counts, for each class of bytes, what became of the mutations that touch it.
struct Counts {
    int mutations = 0, refused = 0, same = 0, other = 0;
};

void read_changed_files(const std::string& name, const std::vector<std::string>& digested,
                        const std::function<std::string(const std::string&)>& read) {
    const Coverage coverage(input(name), digested);
    const Outcome whole = attempt([&] { return read(input(name)); });
    ASSERT_EQ(whole.kind, Outcome::Kind::accepted) << whole.text;
    const std::string changed_path =
        ::testing::TempDir() + "fuzz-" + std::to_string(::getpid()) + "-" + name;
    Random random(first_seed());
    std::array<Counts, covers> counts{};
    for (int m = 0; m < mutations();) {
        const std::string changed = changed_bytes(coverage.bytes(), coverage.aims(), random);
        const Cover touched = coverage.touched(changed);
        if (touched == Cover::none) {
            continue; // written over by what was there
        }
        ++m;
        std::ofstream(changed_path, std::ios::binary) << changed;
        const Outcome outcome = attempt([&] { return read(changed_path); });
        const bool refused = outcome.kind == Outcome::Kind::refused;
        const bool accepted = outcome.kind == Outcome::Kind::accepted;
        Counts& count = counts[static_cast<std::size_t>(touched)];
        ++count.mutations;
        count.refused += refused ? 1 : 0;
        count.same += accepted && outcome.text == whole.text ? 1 : 0;
        count.other += accepted && outcome.text != whole.text ? 1 : 0;
        const bool covered = touched == Cover::metadata || touched == Cover::digest;
        const bool unread = touched == Cover::gap || touched == Cover::beyond;
        const bool right =
            refused || (accepted && !covered && !(unread && outcome.text != whole.text));
        if (!right) {
            const std::string kept = changed_path + "-" + std::to_string(m);
            std::ofstream(kept, std::ios::binary) << changed;
            ADD_FAILURE() << "mutation " << m << " touches " << name_of(touched)
                          << (accepted ? " and was taken" : " and was neither taken nor refused")
                          << "; kept as " << kept << "\n"
                          << outcome.text;
        }
    }
    ::unlink(changed_path.c_str());
    std::printf("noticed: %-11s %-14s %8s %9s %8s %8s %8s\n", name.c_str(), "bytes of", "bytes",
                "mutations", "refused", "same", "other");
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const Counts& c = counts[i];
        const Cover cover = static_cast<Cover>(i);
        std::printf("noticed: %-11s %-14s %8zu %9d %8d %8d %8d\n", name.c_str(), name_of(cover),
                    coverage.bytes_of(cover), c.mutations, c.refused, c.same, c.other);
    }
}

TEST(Fuzz, changed_token_files_are_refused_or_read_as_they_stand) {
    read_changed_files("tokens.h5", {"tokens", "offsets", "score_from", "bytes", "id"},
                       read_tokens);
}

TEST(Fuzz, changed_weights_files_are_refused_or_read_as_they_stand) {
    read_changed_files("weights.h5", {"config", "tokenizer"}, read_weights);
}

} // namespace

} // namespace foregather::fuzz
