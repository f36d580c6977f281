// SPDX-License-Identifier: Apache-2.0
// One MPI shared-memory window, allocated whole by the first rank of the group.
#include <foregather/mesh/window.hpp>

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdint>

namespace foregather::mesh {
namespace {
constexpr std::int64_t page = 4096;
}

void WindowCloser::operator()(MPI_Win window) const noexcept {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0 &&
        std::uncaught_exceptions() == 0) { // a free is collective
        MPI_Win_free(&window);
    }
}

SharedWindow::SharedWindow(MPI_Comm group, base::Bytes size) : size_(size) {
    int rank = 0;
    int ranks = 1;
    check(MPI_Comm_rank(group, &rank), "ask for a rank");
    check(MPI_Comm_size(group, &ranks), "ask for a group's size");
    MPI_Win window = MPI_WIN_NULL;
    void* own = nullptr;
    const std::string what = "allocate a shared window of " + std::to_string(size.count) + " bytes";
    check(MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(size.count + page) : 0, 1,
                                  MPI_INFO_NULL, group, &own, &window),
          what);
    window_ = base::Unique<MPI_Win, WindowCloser>(window);
    MPI_Aint bytes = 0;
    int unit = 0;
    void* first = nullptr;
    check(MPI_Win_shared_query(window, 0, &bytes, &unit, &first), "find the shared window");
    // MPI promises no alignment. Mappings differ between ranks by whole pages, so all round alike.
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    data_ = static_cast<std::byte*>(first) + (page - address % page) % page;
    if (ranks == 1) { // Open MPI takes it from the heap then; a file's pages are zero as they are
        std::fill(data_, data_ + size.count, std::byte{0});
    }
}

WindowSpace window_space() {
    // Open MPI backs shared windows by files in the session directory, or in /dev/shm if it is
    // there.
    const std::string directory = "/dev/shm";
    struct statvfs facts {};
    if (statvfs(directory.c_str(), &facts) != 0) {
        return {directory, {0}};
    }
    return {
        directory,
        {static_cast<std::int64_t>(facts.f_bavail) * static_cast<std::int64_t>(facts.f_frsize)}};
}

} // namespace foregather::mesh
