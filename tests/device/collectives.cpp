// SPDX-License-Identifier: Apache-2.0
// NCCL: how long a communicator takes, whether arenas of the size that jobs use can become
// symmetric windows, and, between several GPUs, what gathers bring.
#include <algorithm>
#include <thread>

#include <mpi.h>

#include <foregather/base/shared_library.hpp>
#include <foregather/comm/nccl_communicator.hpp>
#include <foregather/device/cuda_device.hpp>
#include <foregather/mesh/mpi.hpp>

#include "../../src/comm/cuda/nccl.hpp"
#include "bench.hpp"

namespace foregather::device_bench {
namespace {

using comm::nccl;

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A communicator without the program's watch over it: for what the program does not do with one.
class Group {
public:
    // Collective over all ranks; blocks.
    Group(int rank, int ranks) {
        ncclUniqueId id{};
        if (rank == 0) {
            nccl().check(nccl().unique_id(&id), "make an id");
        }
        mesh::check(MPI_Bcast(id.internal, sizeof(id.internal), MPI_CHAR, 0, MPI_COMM_WORLD),
                    "broadcast an id");
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.commName = "window";
        settle(nccl().init(&comm_, ranks, id, rank, &config), "set up a communicator");
    }
    ~Group() { nccl().abort(comm_); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    // Waits for the end of what NCCL goes on with on its own; its answer.
    ncclResult_t answer(ncclResult_t rc) const {
        while (rc == ncclInProgress) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            nccl().check(nccl().async_error(comm_, &rc), "tell its state", comm_);
        }
        return rc;
    }
    void settle(ncclResult_t rc, const char* attempted) const {
        nccl().check(answer(rc), attempted, comm_);
    }
    ncclComm_t handle() const { return comm_; }

private:
    ncclComm_t comm_ = nullptr;
};

struct Windows {
    decltype(&ncclCommWindowRegister) add = nullptr;
    decltype(&ncclCommWindowDeregister) remove = nullptr;
};

Windows windows() {
    const base::SharedLibrary library("libnccl.so.2", "gathers between GPUs", "install NCCL");
    return {library.find<decltype(&ncclCommWindowRegister)>("ncclCommWindowRegister"),
            library.find<decltype(&ncclCommWindowDeregister)>("ncclCommWindowDeregister")};
}

void register_window(Bench& bench, const Group& group, const Windows& with, const char* arena,
                     base::Bytes size) {
    Columns row{{"arena", arena}, {"bytes", size.count}, {"ranks", bench.ranks}};
    void* data = nullptr;
    auto begin = std::chrono::steady_clock::now();
    const ncclResult_t allocated = nccl().allocate(&data, static_cast<std::size_t>(size.count));
    row["allocate_s"] = seconds_since(begin);
    ncclResult_t registered = allocated;
    double register_s = 0;
    ncclWindow_t window = nullptr;
    if (allocated == ncclSuccess) {
        begin = std::chrono::steady_clock::now();
        registered =
            group.answer(with.add(group.handle(), data, static_cast<std::size_t>(size.count),
                                  &window, NCCL_WIN_COLL_SYMMETRIC));
        register_s = seconds_since(begin);
    }
    const char* words = nccl().last_error(group.handle());
    row["register_s"] = register_s;
    row["registered"] = registered == ncclSuccess && window != nullptr;
    row["answer"] = registered == ncclSuccess
                        ? (window != nullptr ? "accepted" : "accepted, but gave no window")
                        : std::string(nccl().error_string(registered)) +
                              (words != nullptr && *words != '\0' ? std::string("; ") + words : "");
    bench.report.add("nccl_windows", row);
    if (window != nullptr) {
        group.settle(with.remove(group.handle(), window), "deregister a window");
    }
    if (data != nullptr) {
        nccl().check(nccl().release(data), "free a window's memory", group.handle());
    }
}

// The arenas of a 32-billion-parameter model in bf16 over 16 GPUs: a rank's shards, and two slots.
void symmetric_windows(Bench& bench) {
    const Windows with = windows();
    if (with.add == nullptr || with.remove == nullptr) {
        bench.report.skip("NCCL " + comm::nccl_version() + " has no ncclCommWindowRegister");
        return;
    }
    const Group group(bench.rank, bench.ranks);
    const std::int64_t mib = 1 << 20;
    const std::int64_t shards = bench.options.tiny ? mib : 3904 * mib;
    const std::int64_t slots = bench.options.tiny ? mib : 2 * 944 * mib;
    register_window(bench, group, with, "shards", {shards});
    register_window(bench, group, with, "slots", {slots});
}

void set_up(Bench& bench) {
    for (const char* which : {"first", "second"}) { // the first loads the library and its modules
        const auto begin = std::chrono::steady_clock::now();
        bench.communicators.push_back(
            comm::make_nccl_communicator(MPI_COMM_SELF, *bench.device, {}));
        bench.report.add("nccl_setup", {{"communicator", which},
                                        {"ranks", 1},
                                        {"setup_and_first_gather_s", seconds_since(begin)}});
    }
}

double most_of_ranks(double mine) {
    double most = 0;
    mesh::check(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD),
                "find the slowest rank");
    return most;
}

// Bandwidths as nccl-tests define them for all-gathers: algorithm = all ranks' bytes / time, bus =
// algorithm x (ranks - 1) / ranks. In turn, out of place.
void all_gathers(Bench& bench) {
    auto begin = std::chrono::steady_clock::now();
    bench.communicators.push_back(comm::make_nccl_communicator(MPI_COMM_WORLD, *bench.device, {}));
    comm::Communicator& group = *bench.communicators.back();
    const double setup_s = most_of_ranks(seconds_since(begin));
    bench.report.add("nccl_setup", {{"communicator", "all GPUs"},
                                    {"ranks", bench.ranks},
                                    {"setup_and_first_gather_s", setup_s}});
    const auto stream = bench.device->stream("gather", device::Priority::high);
    const Elements most = bench.options.tiny ? Elements{1} << 16 : Elements{512} << 20;
    const base::Bytes part{most / bench.ranks};
    const auto shard = group.allocate(*bench.device, part, "a part");
    const auto full = group.allocate(*bench.device, bench.ranks * part, "all parts");
    const int repeats = bench.options.tiny ? 2 : 20;
    for (Elements bytes = bench.options.tiny ? most : Elements{1} << 20; bytes <= most;
         bytes *= 2) {
        const Elements n = bytes / bench.ranks / 2; // of bf16
        const auto gather = [&] {
            group.all_gather({shard->data(), n, base::DType::bf16},
                             {full->data(), bench.ranks * n, base::DType::bf16}, "a gather",
                             *stream);
        };
        Stopwatch watch(bench.events);
        gather();
        stream->sync();
        mesh::check(MPI_Barrier(MPI_COMM_WORLD), "begin together");
        watch.start(*stream);
        for (int i = 0; i < repeats; ++i) {
            gather();
        }
        watch.stop(*stream);
        stream->sync();
        const double s = most_of_ranks(watch.seconds() / repeats);
        const double rate = static_cast<double>(2 * n * bench.ranks) / s * 1e-9;
        bench.report.add("nccl_gathers",
                         {{"bytes", 2 * n * bench.ranks},
                          {"ranks", bench.ranks},
                          {"gather_s", s},
                          {"algorithm_gbytes_per_s", rate},
                          {"bus_gbytes_per_s", rate * (bench.ranks - 1) / bench.ranks}});
    }
}

} // namespace

void collectives(Bench& bench) {
    if (bench.ranks > 1) {
        all_gathers(bench);
    } else {
        set_up(bench);
        if (device::visible_gpus().count < 2) {
            bench.report.skip("gathers between GPUs: there is one GPU");
        }
    }
    symmetric_windows(bench);
}

} // namespace foregather::device_bench
