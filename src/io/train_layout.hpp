// SPDX-License-Identifier: Apache-2.0
// The datasets of /train and /evaluation: names, units, what they hold before a run, and how rows
// are written into them. Who writes what, and when, is decided by results_file.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include <foregather/io/results_file.hpp>

namespace foregather::io {

// Creates and fills all of it in a file that this process alone has open for writing. Returns bytes
// written.
std::int64_t lay_out(const File& file, const TrainLayout& train);

// The datasets of a file that is open, to be written by one rank.
class TrainDatasets {
public:
    // `name`: of the file, for messages. No write will be larger than piece_bytes.
    TrainDatasets(const File& file, std::string name, std::int64_t piece_bytes);

    // Rows from `first` on; each returns bytes written. Throws Error(failed) when there is no room
    // for them, or columns differ in length.
    std::int64_t write(std::int64_t first, const LossHistory& rows) const;
    std::int64_t write(std::int64_t first, const EvaluationHistory& rows) const;
    std::int64_t write(std::int64_t first, const ItemRows& rows) const;

private:
    struct Column {
        std::string path;
        Dataset dataset;
    };
    template <class T>
    std::int64_t put(const char* path, std::int64_t first, const std::vector<T>& values,
                     std::size_t rows) const;

    std::string name_;
    std::int64_t piece_bytes_;
    std::vector<Column> columns_;
};

// Steps that were run, in order; none in a file without /train. Throws Error when it cannot be
// read.
LossHistory read_steps(const File& file);

} // namespace foregather::io
