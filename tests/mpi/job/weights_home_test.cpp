// SPDX-License-Identifier: Apache-2.0
// From a weights file to what a compute reads, on a device whose memory is apart: with parts on the
// device, and with parts in host memory that come up through stages or, on one rank, into slots.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/mesh/control.hpp>

#include "../../../src/job/weights_home.hpp"
#include "../../support/apart_device.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"
#include "../../unit/io/h5_fixture.hpp"

using namespace foregather;
namespace h5 = foregather::io::testing;

namespace {

class ApartBackend final : public backend::Backend {
public:
    std::string kind() const override { return "apart"; }
    tests::ApartDevice& device() override { return device_; }
    kernels::Kernels& kernels() override { base::fail("nothing is computed here"); }
    std::string transport() const override { return "mpi"; }
    bool can_share() const override { return false; }
    std::unique_ptr<comm::Communicator> gather_communicator(const mesh::Topology& topology,
                                                            const deck::CommSection&) override {
        return comm::make_mpi_communicator(topology.shard(), {});
    }
    std::unique_ptr<comm::Communicator>
    reduce_communicator(const mesh::Topology&, const deck::CommSection&, bool) override {
        base::fail("nothing is reduced here");
    }
    std::unique_ptr<comm::Communicator> replica_communicator(const mesh::Topology&,
                                                             const deck::CommSection&) override {
        base::fail("nothing is reduced here");
    }
    std::int64_t judged_compute_ns() const override { return 0; }
    int threads_seen(device::Stream&) const override { return 0; }

private:
    tests::ApartDevice device_{5, std::chrono::microseconds(200)};
};

class WeightsHomeTest : public testing::TestWithParam<bool> {
protected:
    WeightsHomeTest() {
        const mesh::Control control(MPI_COMM_WORLD);
        if (tests::rank() == 0) {
            directory_ = std::make_unique<h5::Directory>();
            write(*directory_ / "weights.h5");
        }
        path_ = control.broadcast(tests::rank() == 0 ? *directory_ / "weights.h5" : "");
        chain_.units = model_.units;
        for (const base::UnitId unit : model_.uses) {
            chain_.uses.push_back({unit, model::Role::layer, unit});
        }
    }
    ~WeightsHomeTest() override { tests::agree(true); } // rank 0 removes it when all have read

    void write(const std::string& path) const {
        h5::Writer writer(path);
        writer.attribute("format", std::string("foregather.weights"));
        writer.attribute("format_version", std::int64_t{1});
        writer.text("config", "{}");
        for (std::size_t u = 0; u < model_.units.size(); ++u) {
            const base::Elements n = model_.units[u].parts.front().rows;
            std::vector<float> values;
            for (base::Elements e = 0; e < n; ++e) {
                values.push_back(value(u, e));
            }
            writer.put("weights/tensor/" + std::to_string(u), H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
                       {static_cast<hsize_t>(n)}, values);
        }
    }
    float value(std::size_t unit, base::Elements e) const {
        return tests::toy_value(model_.units[unit], static_cast<base::UnitId>(unit), e);
    }

    // Units without padding at their end: padding is zero in a file's unit.
    static tests::ToyModel whole_units() {
        tests::ToyModel model;
        for (int u = 0; u < 5; ++u) {
            shard::UnitSpec unit;
            unit.name = "unit." + std::to_string(u);
            const base::Elements rows = 128 * (3 + 2 * u % 7);
            unit.append("tensor." + std::to_string(u), {rows}, 0, rows);
            model.units.push_back(unit);
            model.uses.push_back(u);
        }
        return model;
    }

    tests::ToyModel model_ = whole_units();
    model::Chain chain_;
    std::unique_ptr<h5::Directory> directory_;
    std::string path_;
};

} // namespace

TEST_P(WeightsHomeTest, every_compute_reads_what_the_file_holds) {
    const bool offload = GetParam();
    const mesh::Topology topology(0, "mesh.shard");
    ApartBackend backend;
    const std::string alone = offload ? job::host_memory_transport : "none";
    const job::Transport transport{topology.size() > 1 ? "mpi" : alone, ""};
    const backend::Needs needs{{4096}, 1, {}, false, {}};
    job::WeightsHome home(chain_, transport, topology, backend, {},
                          {job::arena_plan(chain_, topology.size(), needs, base::DType::f32),
                           base::DType::f32, 2, offload});
    io::WeightsFile file(path_);
    home.load(file);
    const std::size_t loads = backend.device().copies().size();
    EXPECT_EQ(loads > 0, !offload) << "parts in host memory are read where they lie";
    tests::ToyOptions options;
    auto& source = home.open_source(tests::source_options(model_, options));
    const auto compute = backend.device().stream("compute", device::Priority::normal);
    tests::ToyWatch watch;
    const int allocations = backend.device().allocations();
    tests::run_passes(source, model_, options, *compute, watch,
                      [&] { backend.device().mark_time(*compute); });
    EXPECT_EQ(watch.wrong, 0);
    EXPECT_EQ(watch.computes, 5 * options.passes);
    EXPECT_EQ(backend.device().allocations(), allocations);
    EXPECT_EQ(backend.device().copies().size() - loads, offload ? 5U * 3U : 0U);
    EXPECT_EQ(home.transport(), transport.name);
}

INSTANTIATE_TEST_SUITE_P(Offload, WeightsHomeTest, testing::Values(false, true));
