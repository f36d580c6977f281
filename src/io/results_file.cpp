// SPDX-License-Identifier: Apache-2.0
// The life of PATH.part: laid out by rank 0, filled by all with raw data only, completed by rank 0.
// While ranks share the file no metadata change, and later none before what they refer to is on
// disk: a kill at any moment leaves a file that opens.
#include <foregather/io/results_file.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <type_traits>

#include "keep_open.hpp"
#include "output_path.hpp"
#include "score_layout.hpp"
#include "train_layout.hpp"

namespace foregather::io {

struct ResultsFile::Shared {
    File file;
    Dataset logprob, greedy, nll, scored_tokens, status, packs_done; // none without a ScoreLayout
    Dataset entropy, top_tokens, top_logprobs, logits, hidden;       // only what was laid out
    std::optional<TrainDatasets> train;
};

namespace {

Summary broadcast(const mesh::Control& control, const Summary& summary) {
    static_assert(std::is_trivially_copyable_v<Summary>);
    const auto bytes = std::bit_cast<std::array<char, sizeof(Summary)>>(summary);
    const std::string received = control.broadcast(std::string(bytes.begin(), bytes.end()));
    Summary result;
    std::memcpy(&result, received.data(), sizeof(result));
    return result;
}

} // namespace

ResultsFile::ResultsFile(const mesh::Control& control, Output output,
                         const std::optional<ScoreLayout>& score, const std::vector<Table>& tables,
                         const std::vector<Text>& texts, const std::optional<Resumed>& resumed,
                         const std::optional<TrainLayout>& train)
    : control_(control), output_(std::move(output)), part_path_(io::part_path(output_.path)) {
    control_.together([&] {
        if (control_.first()) {
            refuse_unusable(output_);
            if (resumed) {
                reopen(*resumed);
            } else {
                create(score, train, tables, texts);
            }
            if (score && score->tokens.has_bytes()) {
                remember_bytes(score->tokens);
            }
        }
    });
    note_ = control_.broadcast(note_);
    try {
        control_.together([&] { open(score.has_value(), train.has_value()); });
    } catch (...) {
        keep_open(std::move(shared_)); // some ranks may not have it open
        throw;
    }
}

ResultsFile::~ResultsFile() {
    if (std::uncaught_exceptions() > 0) {
        keep_open(std::move(shared_));
    }
}

void ResultsFile::create(const std::optional<ScoreLayout>& score,
                         const std::optional<TrainLayout>& train, const std::vector<Table>& tables,
                         const std::vector<Text>& texts) {
    refuse_without_room(output_, score   ? bytes_of(*score)
                                 : train ? bytes_of(*train)
                                         : base::Bytes{});
    if (remove_file(part_path_) == 0) {
        note_ = part_path_ + ", left by a run that did not end, was replaced";
    } else if (errno != ENOENT) {
        base::refuse("cannot remove " + part_path_ + ": " + std::strerror(errno));
    }
    claim_ = claim(part_path_);
    File file = create_shared(part_path_, MPI_COMM_SELF);
    write_attribute(file.handle(), "format", std::string("foregather.results"));
    write_attribute(file.handle(), "format_version", std::int64_t{1});
    write_attribute(file.handle(), "title", output_.title);
    write_attribute(file.handle(), "complete", std::int64_t{0});
    create_roomy_group(file, "/provenance");
    create_roomy_group(file, "/timing");
    if (score) {
        bytes_written_.add(lay_out(file, *score, output_.piece_bytes));
    }
    if (train) {
        bytes_written_.add(lay_out(file, *train));
    }
    for (const Table& table : tables) {
        bytes_written_.add(write_table(file, table, output_.piece_bytes));
    }
    for (const Text& text : texts) {
        bytes_written_.add(write_text(file, text));
    }
    io::flush(file, part_path_);
    close(file, part_path_);
}

void ResultsFile::reopen(const Resumed& resumed) {
    claim_ = claim(part_path_, true);
    File file = open_shared(part_path_, MPI_COMM_SELF);
    write_start(file, resumed.start_number, resumed.start);
    io::flush(file, part_path_);
    close(file, part_path_);
}

void ResultsFile::remember_bytes(const TokenFile& tokens) {
    for (std::int64_t d = 0; d < tokens.documents(); ++d) {
        document_bytes_.push_back(tokens.bytes(d));
    }
}

void publish_part(const Output& output) { publish(output); }

void ResultsFile::open(bool with_score, bool with_train) {
    shared_ = std::make_unique<Shared>();
    shared_->file = open_shared(part_path_, control_.comm());
    if (with_train) {
        shared_->train.emplace(shared_->file, part_path_, output_.piece_bytes);
    }
    if (!with_score) {
        return;
    }
    const auto dataset = [&](const char* path) {
        return Dataset(check(H5Dopen2(shared_->file.handle(), path, H5P_DEFAULT),
                             "open " + std::string(path) + " of " + part_path_));
    };
    const auto if_there = [&](const char* path) {
        return check(H5Lexists(shared_->file.handle(), path, H5P_DEFAULT),
                     "look for " + part_path_) > 0
                   ? dataset(path)
                   : Dataset();
    };
    shared_->entropy = if_there(score_path::entropy);
    shared_->top_tokens = if_there(score_path::top_tokens);
    shared_->top_logprobs = if_there(score_path::top_logprobs);
    shared_->logits = if_there(score_path::logits);
    shared_->hidden = if_there(score_path::hidden);
    shared_->greedy = dataset(score_path::greedy);
    shared_->nll = dataset(score_path::nll);
    shared_->scored_tokens = dataset(score_path::scored_tokens);
    shared_->status = dataset(score_path::status);
    shared_->packs_done = dataset(score_path::packs_done);
    shared_->logprob = dataset(score_path::logprob);
}

ResultsFile::Shared& ResultsFile::shared() {
    if (!shared_) {
        base::fail(part_path_ + " is closed already");
    }
    return *shared_;
}

ResultsFile::Shared& ResultsFile::scores() {
    if (!shared().logprob) {
        base::fail(part_path_ + " was laid out without scores");
    }
    return *shared_;
}

template <class T>
void ResultsFile::write(const Dataset& dataset, std::int64_t first, base::View<const T> values,
                        const char* path) {
    write_range(dataset, first, values, part_path_ + ": " + path, output_.piece_bytes);
    bytes_written_.add(static_cast<std::int64_t>(values.size_bytes()));
}

void ResultsFile::write_score(std::int64_t first_token, base::View<const float> logprob,
                              base::View<const std::uint8_t> greedy) {
    const Shared& target = scores();
    write(target.logprob, first_token, logprob, score_path::logprob);
    write(target.greedy, first_token, greedy, score_path::greedy);
}

template <class T>
void ResultsFile::write_matrix(const Dataset& dataset, std::int64_t first, std::int64_t rows,
                               base::View<const T> values, const char* path) {
    if (values.empty()) {
        return;
    }
    if (!dataset) {
        base::fail(part_path_ + " was laid out without " + path);
    }
    const base::Shape shape = shape_of(dataset, path);
    Block block{{first}, {rows}};
    if (shape.size() == 2) {
        block.start.push_back(0);
        block.count.push_back(shape[1]);
    }
    if (base::elements_of(block.count) != std::ssize(values)) {
        base::fail(std::to_string(values.size()) + " values do not fill " + std::to_string(rows) +
                   " rows of " + path);
    }
    for_each_piece(block, sizeof(T), output_.piece_bytes,
                   [&](const Block& piece, base::Elements position) {
                       write_block(dataset, native_type<T>(), piece,
                                   reinterpret_cast<const std::byte*>(values.data() + position),
                                   part_path_ + ": " + path);
                   });
    bytes_written_.add(static_cast<std::int64_t>(values.size_bytes()));
}

void ResultsFile::write_rows(std::int64_t first_token, std::int64_t rows,
                             const RowResults& results) {
    const Shared& to = scores();
    write_matrix(to.entropy, first_token, rows, results.entropy, score_path::entropy);
    write_matrix(to.top_tokens, first_token, rows, results.top_tokens, score_path::top_tokens);
    write_matrix(to.top_logprobs, first_token, rows, results.top_logprobs,
                 score_path::top_logprobs);
    write_matrix(to.logits, first_token, rows, results.logits, score_path::logits);
    write_matrix(to.hidden, first_token, rows, results.hidden, score_path::hidden);
}

void ResultsFile::write_documents(std::int64_t first, base::View<const double> nll,
                                  base::View<const std::int64_t> scored_tokens,
                                  base::View<const std::uint8_t> status) {
    const Shared& target = scores();
    write(target.nll, first, nll, score_path::nll);
    write(target.scored_tokens, first, scored_tokens, score_path::scored_tokens);
    write(target.status, first, status, score_path::status);
}

template <class Rows>
void ResultsFile::write_train(std::int64_t first, const Rows& rows) {
    if (!shared().train) {
        base::fail(part_path_ + " was laid out without rows of training");
    }
    bytes_written_.add(shared_->train->write(first, rows));
}

void ResultsFile::write_steps(std::int64_t first, const LossHistory& rows) {
    write_train(first, rows);
}

void ResultsFile::write_evaluations(std::int64_t first, const EvaluationHistory& rows) {
    write_train(first, rows);
}

void ResultsFile::write_items(std::int64_t first, const ItemRows& rows) {
    write_train(first, rows);
}

void ResultsFile::mark_pack(std::int64_t pack) { pending_packs_.push_back(pack); }

void ResultsFile::flush() {
    control_.together([&] { io::flush(shared().file, part_path_); });
    // A mark is written only when the data of every rank are on disk.
    control_.together([&] {
        const std::uint8_t done = 1;
        for (const std::int64_t pack : pending_packs_) {
            write(scores().packs_done, pack, base::View<const std::uint8_t>(&done, 1),
                  score_path::packs_done);
        }
        pending_packs_.clear();
    });
    control_.together([&] { io::flush(shared().file, part_path_); });
}

DocumentStatus status_of(std::int64_t scored_tokens, double nll) {
    return scored_tokens == 0   ? DocumentStatus::nothing_to_score
           : std::isfinite(nll) ? DocumentStatus::scored
                                : DocumentStatus::not_finite;
}

void ResultsFile::add_up(const SplitDocument& document) {
    constexpr base::Elements at_once = base::Elements{1} << 20;
    std::vector<float> logprob;
    double nll = 0; // in the order of tokens
    for (base::Elements first = document.scored.begin; first < document.scored.end;
         first += at_once) {
        logprob.resize(static_cast<std::size_t>(std::min(at_once, document.scored.end - first)));
        read_range(scores().logprob, first, base::View<float>(logprob), score_path::logprob);
        for (const float one : logprob) {
            nll -= static_cast<double>(one);
        }
    }
    const std::int64_t n = std::max<std::int64_t>(document.scored.size(), 0);
    const auto status = static_cast<std::uint8_t>(status_of(n, nll));
    write_documents(document.document, {&nll, 1}, {&n, 1}, {&status, 1});
}

Summary ResultsFile::summarise(const std::vector<SplitDocument>& split) {
    flush();
    Summary summary;
    control_.together([&] {
        if (control_.first()) {
            const Shared& stored = scores();
            for (const SplitDocument& document : split) {
                add_up(document);
            }
            const std::int64_t documents = shape_of(stored.nll, score_path::nll)[0];
            summary = io::summarise({stored.nll, stored.scored_tokens, stored.status}, documents,
                                    document_bytes_);
        }
    });
    return broadcast(control_, summary);
}

void ResultsFile::finish(const std::optional<Summary>& summary, const std::vector<Table>& tables,
                         const std::vector<Text>& texts) {
    flush();
    control_.together([&] {
        File file = std::move(shared().file);
        shared_.reset(); // the datasets' handles go first: HDF5 closes no file that has some
        close(file, part_path_);
    });
    control_.together([&] {
        if (control_.first()) {
            complete(summary, tables, texts);
            publish(output_);
        }
    });
}

void ResultsFile::complete(const std::optional<Summary>& summary, const std::vector<Table>& tables,
                           const std::vector<Text>& texts) {
    reserve(part_path_, room_for(tables, texts));
    File file = open_shared(part_path_, MPI_COMM_SELF);
    // A run that was killed when it came to this has left some of them in their places.
    for (const Table& table : tables) {
        displace(file, table.path);
    }
    for (const Text& text : texts) {
        displace(file, text.path);
    }
    {
        std::vector<Unplaced> made; // closed before the file is
        for (const Table& table : tables) {
            made.push_back(make_table(file, table, output_.piece_bytes));
            bytes_written_.add(made.back().bytes);
        }
        for (const Text& text : texts) {
            made.push_back(make_text(file, text));
            bytes_written_.add(made.back().bytes);
        }
        // HDF5 writes its metadata in no order that we know. So the file's end and what lies before
        // it go to disk first, while nothing refers to it; all later changes stay in their place.
        io::flush(file, part_path_);
        for (const Unplaced& one : made) {
            place(file, one);
        }
        io::flush(file, part_path_);
    }
    if (summary) {
        overwrite_summary(file, *summary);
        io::flush(file, part_path_);
    }
    overwrite_attribute(file.handle(), "complete", std::int64_t{1});
    close(file, part_path_);
}

} // namespace foregather::io
