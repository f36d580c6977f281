// SPDX-License-Identifier: Apache-2.0
// One piece of memory that all ranks of a node-local group see: allocated by the group's first
// rank. What lies in it and who writes when is the business of its users.
#pragma once

#include <cstddef>
#include <string>

#include <foregather/base/types.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::mesh {

struct WindowCloser {
    static MPI_Win null() { return MPI_WIN_NULL; }
    void operator()(MPI_Win window) const noexcept;
};

class SharedWindow {
public:
    // Collective over `group`, whose ranks are all on one node; blocks. Memory is zero,
    // page-aligned, and placed by whoever touches a page first.
    SharedWindow(MPI_Comm group, base::Bytes size);

    std::byte* data() const { return data_; }
    base::Bytes size() const { return size_; }

private:
    base::Unique<MPI_Win, WindowCloser> window_;
    std::byte* data_ = nullptr;
    base::Bytes size_;
};

// Free space of the directory that backs shared windows on this node, and its name.
struct WindowSpace {
    std::string directory;
    base::Bytes free;
};
WindowSpace window_space();

} // namespace foregather::mesh
