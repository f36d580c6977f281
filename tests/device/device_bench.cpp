// SPDX-License-Identifier: Apache-2.0
// Runs one part of the device bench on this rank's GPU: device_bench --part NAME --out FILE
// [--budget SECONDS] [--tiny]. What the parts measure is theirs; run.sh starts them one by one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <dlfcn.h>
#include <mpi.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/nccl_communicator.hpp>
#include <foregather/device/cuda_device.hpp>
#include <foregather/kernels/cuda_kernels.hpp>
#include <foregather/mesh/mpi.hpp>
#include <foregather/mesh/session.hpp>

#include "bench.hpp"

namespace foregather::device_bench {
namespace {

const std::map<std::string, void (*)(Bench&)> parts = {
    {"provenance", provenance}, {"products", products},     {"forward", forward},
    {"streaming", streaming},   {"contention", contention}, {"nccl", collectives}};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--tiny") {
            options.tiny = true;
        } else if (i + 1 < argc && word == "--part") {
            options.part = argv[++i];
        } else if (i + 1 < argc && word == "--out") {
            options.out = argv[++i];
        } else if (i + 1 < argc && word == "--budget") {
            options.budget_s = std::atof(argv[++i]);
        } else {
            base::refuse(word + ": not an option, or without its value");
        }
    }
    if (parts.find(options.part) == parts.end() || options.out.empty() || options.budget_s <= 0) {
        base::refuse("usage: device_bench --part provenance|products|forward|streaming|contention|"
                     "nccl --out FILE --budget SECONDS [--tiny]");
    }
    // The tests' doubles of CUDA have this; on a GPU nothing does.
    options.emulated = dlsym(RTLD_DEFAULT, "foregather_emulation_name") != nullptr;
    return options;
}

Bench open(const Options& options, Report& report, int gpu, int rank, int ranks) {
    auto device = device::make_cuda_device(gpu);
    auto kernels = kernels::make_cuda_kernels(*device, false);
    auto compute = device->stream("compute", device::Priority::normal);
    auto normals = std::make_unique<Normals>(*device, options.tiny);
    return Bench{.options = options,
                 .report = report,
                 .device = std::move(device),
                 .kernels = std::move(kernels),
                 .compute = std::move(compute),
                 .normals = std::move(normals),
                 .gpu = gpu,
                 .rank = rank,
                 .ranks = ranks};
}

void run(const Options& options, Report& report, int rank, int ranks) {
    const device::VisibleGpus visible = device::visible_gpus();
    const int gpu = device::gpu_of(rank, visible.count);
    if (visible.count == 0 || gpu < 0) {
        report.skip(visible.count == 0 ? visible.why_none : "there are more ranks than GPUs");
        return;
    }
    Bench bench = open(options, report, gpu, rank, ranks);
    parts.at(options.part)(bench);
    bench.compute->sync();
}

} // namespace

// What the run was made with; what only scripts know is added by run.sh.
void provenance(Bench& bench) {
    int driver = 0, runtime = 0;
    device::check(cudaDriverGetVersion(&driver), "ask for the driver's version");
    device::check(cudaRuntimeGetVersion(&runtime), "ask for the runtime's version");
    const device::Facts facts = bench.device->facts();
    std::string nccl;
    try {
        nccl = comm::nccl_version();
    } catch (const base::Error& error) {
        nccl = std::string("none: ") + error.what();
    }
    bench.report.add("provenance", {{"gpu", facts.name},
                                    {"gpu_address", facts.address},
                                    {"gpu_memory_bytes", facts.memory.count},
                                    {"gpus", device::visible_gpus().count},
                                    {"cuda_driver", driver},
                                    {"cuda_runtime", runtime},
                                    {"cuda_built_with", device::cuda_built_with()},
                                    {"nccl", nccl},
                                    {"nccl_built_with", comm::nccl_built_with()},
                                    {"cublaslt", bench.kernels->product_name()},
                                    {"cublaslt_built_with", kernels::cublaslt_built_with()}});
}

} // namespace foregather::device_bench

int main(int argc, char** argv) {
    using namespace foregather;
    try {
        const device_bench::Options options = device_bench::parse(argc, argv);
        mesh::Session session(&argc, &argv);
        const int rank = mesh::rank_in(MPI_COMM_WORLD), ranks = mesh::size_of(MPI_COMM_WORLD);
        device_bench::Report report(options, rank == 0);
        try {
            device_bench::run(options, report, rank, ranks);
        } catch (const std::exception& error) {
            report.fail(error.what());
            throw;
        }
        return 0;
    } catch (const base::Error& error) {
        std::fprintf(stderr, "device_bench: %s (%s:%d)\n", error.what(), error.where().file,
                     error.where().line);
        int up = 0;
        MPI_Initialized(&up);
        if (up != 0) {
            mesh::Session::abort(static_cast<int>(error.status()));
        }
        return static_cast<int>(error.status());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "device_bench: %s\n", error.what());
        return 1;
    }
}
