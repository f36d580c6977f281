// SPDX-License-Identifier: Apache-2.0
// The results file of a run: laid out at the start as PATH.part, filled by all ranks, completed and
// renamed at the end. It knows the layout of /score and /train; what the numbers are is the job's
// business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/descriptor.hpp>
#include <foregather/io/digest.hpp>
#include <foregather/io/earlier.hpp>
#include <foregather/io/table.hpp>
#include <foregather/io/token_file.hpp>
#include <foregather/mesh/control.hpp>

namespace foregather::io {

// What became of a document: /score/document_status.
enum class DocumentStatus : std::uint8_t {
    scored = 0,
    nothing_to_score = 1,
    not_finite = 2, // a log-probability was not finite: left out of the loss
    not_run = 3,    // beyond data.max_documents, or the run has not come to it
};

// Sums over the documents of status `scored`, in document order, in double.
struct Summary {
    std::int64_t scored_tokens = 0;    // N
    std::int64_t scored_documents = 0; // D
    std::int64_t empty_documents = 0, not_finite_documents = 0, documents_not_run = 0;
    double total_nll = 0.0; // nat
    // total_nll / N, NaN when N = 0; and exp(loss)
    double loss = 0.0, perplexity = 0.0;
    // Of the loss, with documents as the sampling unit (ratio estimator, linearised):
    // sqrt(D/(D-1) * sum_d (nll_d - loss * n_d)^2) / N, NaN for D < 2. Cochran, Sampling
    // Techniques, 3rd edition, section 6.4, without the finite population correction.
    double standard_error = 0.0;
    // total_nll / ln 2 / (bytes of the scored documents), when the token file knows bytes
    std::optional<double> bits_per_byte;
};

// What job score stores for each token and document of a token file.
struct ScoreLayout {
    const TokenFile& tokens; // must outlive the constructor of ResultsFile
    std::int64_t packs = 0;
    // What is stored of the distribution after each token; 0 or false: nothing.
    bool entropy = false;
    std::int64_t top_k = 0;
    std::int64_t vocabulary = 0; // of the logits
    std::int64_t width = 0;      // of the hidden states
};

// What job train stores: rows that are known in number beforehand.
struct TrainLayout {
    std::int64_t steps = 0, evaluations = 0;
    std::int64_t items = 0; // that all steps take; 0: which ones is not stored
};
// The columns of /train/items: documents or windows that steps took.
struct ItemRows {
    std::vector<std::int64_t> step, document, window;
};

// Of tokens that follow each other, one row a token; what was not laid out is empty.
struct RowResults {
    base::View<const float> entropy{};
    base::View<const std::int32_t> top_tokens{}; // [rows, k]
    base::View<const float> top_logprobs{};      // [rows, k]
    base::View<const float> logits{};            // [rows, V]
    base::View<const float> hidden{};            // [rows, C]
};

// A document whose scores are stored by several packs.
struct SplitDocument {
    std::int64_t document = 0;
    base::Range scored; // its scored tokens in /tokens
};

// What a sum over so many scored tokens makes of a document.
DocumentStatus status_of(std::int64_t scored_tokens, double nll);

// Bytes of the datasets that are laid out at the start.
base::Bytes bytes_of(const ScoreLayout& layout);
base::Bytes bytes_of(const TrainLayout& layout);

// Where results go.
struct Output {
    std::string path;
    bool replace = false; // an existing file is replaced, by the rename at the end
    std::string title;
    bool resume = false; // what an earlier run left is not in the way
    // No write of an array will be larger; a text, or one string, is written at once.
    std::int64_t piece_bytes = default_piece_bytes;
};

// Where results are collected.
std::string part_path(const std::string& path);

// Throws Error(refused) when the file exists and is not to be replaced, is a directory, the
// directory is missing or cannot be written to, or the title is too long for an attribute. Leaves
// nothing behind. Not collective: for one rank.
void refuse_unusable(const Output& output);
// Throws Error(refused) when the directory's file system has less room than that. Not collective.
void refuse_without_room(const Output& output, base::Bytes needed);

// What a user may still write to a directory's file system. Throws Error(refused). Not collective.
base::Bytes free_room(const std::string& directory);

// Renames a PATH.part that is complete. Throws Error(failed). For one rank; blocks.
void publish_part(const Output& output);

// All members are called by the main thread; those called collective, by every rank of `control`.
class ResultsFile {
public:
    // Collective; blocks. Rank 0 lays out PATH.part (replacing one that an earlier run left), with
    // `tables` and `texts` (rank 0's count); then all ranks open it. Throws mesh::AgreedError:
    // refused as by the two functions above, failed otherwise. `control` must outlive the file.
    // resumed (rank 0's counts): go on with the PATH.part that is there, of the same layout; tables
    // and texts are in it already, and row `start_number` of its starts becomes this one.
    struct Resumed {
        std::int64_t start_number = 0;
        RunStart start;
    };
    ResultsFile(const mesh::Control& control, Output output,
                const std::optional<ScoreLayout>& score, const std::vector<Table>& tables,
                const std::vector<Text>& texts,
                const std::optional<Resumed>& resumed = std::nullopt,
                const std::optional<TrainLayout>& train = std::nullopt);
    // Collective: closes the file and leaves PATH.part. With an exception on its way the handle is
    // kept to the end of the process instead: closing would wait for ranks that never come.
    ~ResultsFile();
    ResultsFile(const ResultsFile&) = delete;
    ResultsFile& operator=(const ResultsFile&) = delete;

    const std::string& part_path() const { return part_path_; }
    // What the user should be told: that a left-over PATH.part was replaced; "" if nothing.
    const std::string& note() const { return note_; }

    // Tokens [first, first + n) of the token file: log-probability (nat, NaN where not scored), and
    // whether the token was the most likely one (0 or 1). Not collective.
    void write_score(std::int64_t first_token, base::View<const float> logprob,
                     base::View<const std::uint8_t> greedy);
    // What is predicted after tokens [first, first + rows). Not collective.
    void write_rows(std::int64_t first_token, std::int64_t rows, const RowResults& results);
    // Documents [first, first + n): sum of -logprob, number of scored tokens, DocumentStatus. A
    // document that is never written stays `not_run`. Not collective.
    void write_documents(std::int64_t first, base::View<const double> nll,
                         base::View<const std::int64_t> scored_tokens,
                         base::View<const std::uint8_t> status);
    // Rows of /train, /evaluation and /train/items, the first at row `first`. For one rank, the
    // same in the whole run. Throws Error(failed) when the layout has no place for them.
    void write_steps(std::int64_t first, const LossHistory& rows);
    void write_evaluations(std::int64_t first, const EvaluationHistory& rows);
    void write_items(std::int64_t first, const ItemRows& rows);
    // The pack's scores are written: /provenance/packs_done[pack] becomes 1 at the next flush.
    void mark_pack(std::int64_t pack);

    // Collective; blocks until what was written is on disk: data first, then the marks of packs. A
    // run killed later leaves a PATH.part whose marked packs are whole. Throws AgreedError.
    void flush();
    // Collective; blocks. Flushes; rank 0 adds up the stored scores of `split` documents (its list
    // counts) and stores the sums, as write_documents() does for others; then it reads what is
    // stored per document, and every rank returns the sums.
    Summary summarise(const std::vector<SplitDocument>& split = {});
    // Collective; blocks. Flushes and closes; rank 0 adds the tables and texts (rank 0's count),
    // each of them directly in /timing or /provenance, fills in the attributes of /score, changes
    // the root's attribute `complete` from 0 to 1 and renames the file. Killed at any moment of it,
    // the run leaves a PATH.part that opens. Throws AgreedError(failed), and then PATH.part stays,
    // and what was at PATH. Nothing may be written afterwards.
    void finish(const std::optional<Summary>& summary, const std::vector<Table>& tables,
                const std::vector<Text>& texts);

    // Raw bytes that this rank has written so far; may be called from any thread.
    std::int64_t bytes_written() const { return bytes_written_.count(); }

private:
    struct Shared; // the handles of the file that all ranks have open

    void create(const std::optional<ScoreLayout>& score, const std::optional<TrainLayout>& train,
                const std::vector<Table>& tables, const std::vector<Text>& texts);
    void reopen(const Resumed& resumed);
    void remember_bytes(const TokenFile& tokens);
    void open(bool with_score, bool with_train);
    Shared& shared();
    Shared& scores();
    template <class Rows>
    void write_train(std::int64_t first, const Rows& rows);
    void add_up(const SplitDocument& document);
    template <class T>
    void write(const Dataset& dataset, std::int64_t first, base::View<const T> values,
               const char* path);
    template <class T>
    void write_matrix(const Dataset& dataset, std::int64_t first, std::int64_t rows,
                      base::View<const T> values, const char* path);
    void complete(const std::optional<Summary>& summary, const std::vector<Table>& tables,
                  const std::vector<Text>& texts);

    const mesh::Control& control_;
    Output output_;
    std::string part_path_, note_;
    Descriptor claim_; // rank 0
    std::unique_ptr<Shared> shared_;
    std::vector<std::int64_t> pending_packs_;
    std::vector<std::int64_t> document_bytes_; // rank 0: [documents], empty when unknown
    ByteCount bytes_written_;
};

} // namespace foregather::io
