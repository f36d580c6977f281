// SPDX-License-Identifier: Apache-2.0
// What the program stands on, tried where it is installed: MPI, HDF5, products, kernels, a job.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include <foregather/device/host_device.hpp>
#include <foregather/io/h5.hpp>
#include <foregather/io/h5_data.hpp>
#include <foregather/job/job.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/session.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/mesh/window.hpp>

#include "score.hpp"
#include "self_test_files.hpp"

namespace foregather::job {
namespace {

// A folder of its own, which goes with it. On rank 0.
class Folder {
public:
    Folder() {
        std::error_code none;
        std::string name =
            (std::filesystem::temp_directory_path(none) / "foregather-self-test-XXXXXX").string();
        if (none || mkdtemp(name.data()) == nullptr) {
            const char* asked = std::getenv("TMPDIR");
            base::fail("no folder can be made in " + std::string(asked ? asked : "/tmp") +
                       "; set TMPDIR to a folder that can be written to");
        }
        path_ = name;
    }
    ~Folder() {
        std::error_code left;
        std::filesystem::remove_all(path_, left);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// What jobs say does not reach stdout while it lives.
class Silence {
public:
    Silence() : stdout_(dup(STDOUT_FILENO)) {
        std::fflush(stdout);
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (stdout_ < 0 || nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) {
            base::fail("stdout cannot be put aside for /dev/null");
        }
        close(nowhere);
    }
    ~Silence() {
        std::fflush(stdout);
        dup2(stdout_, STDOUT_FILENO);
        close(stdout_);
    }
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;

private:
    int stdout_;
};

class SelfTest {
public:
    explicit SelfTest(const Start& start)
        : start_(start), topology_(0, "mesh.shard"), control_(topology_.world()) {}

    base::Status run() {
        check("folder", [&] { return make_folder(); });
        if (failed_ == 0) {
            check("MPI", [&] { return mpi(); });
            check("HDF5", [&] { return hdf5(); });
            for (const char* library : {"openblas", "onednn", "blis"}) {
                check(std::string("products ") + library, [&] { return products(library); });
            }
            check("kernels", [&] { return kernels(); });
            check("inputs", [&] { return inputs(); });
        }
        if (failed_ == 0) {
            for (const std::string& transport : transports()) {
                check("score " + transport, [&] { return scores(transport); });
            }
        }
        control_.barrier();
        folder_.reset();
        if (control_.first()) {
            std::printf("self-test: %d checks, %d failed, on %d rank%s\n", checks_, failed_,
                        control_.size(), control_.size() == 1 ? "" : "s");
        }
        return failed_ == 0 ? base::Status::done : base::Status::failed;
    }

private:
    // `work` says what was found; it throws what every rank holds, or the test ends here.
    void check(const std::string& name, const std::function<std::string()>& work) {
        std::string found, wrong;
        try {
            found = work();
        } catch (const mesh::AgreedError& error) {
            wrong = error.what();
        } catch (const std::exception& error) { // of this rank alone: others may wait for it
            std::printf("FAIL %s: rank %d: %s\n", name.c_str(), control_.rank(), error.what());
            std::fflush(stdout);
            std::error_code left; // no rank may come to its end
            std::filesystem::remove_all(path_, left);
            mesh::Session::abort(static_cast<int>(base::Status::failed));
        }
        ++checks_;
        failed_ += wrong.empty() ? 0 : 1;
        if (control_.first()) {
            std::printf("%s %s: %s\n", wrong.empty() ? "ok  " : "FAIL", name.c_str(),
                        (wrong.empty() ? found : wrong).c_str());
            std::fflush(stdout);
        }
    }

    std::string make_folder() {
        control_.together([&] {
            if (control_.first()) {
                folder_.emplace();
            }
        });
        path_ = control_.broadcast(control_.first() ? folder_->path() : "");
        control_.together([&] {
            if (!std::filesystem::is_directory(path_)) {
                base::fail(path_ +
                           " is not seen here; set TMPDIR to a folder that all nodes share");
            }
        });
        return path_ + ", which goes at the end";
    }

    std::string mpi() {
        std::string text = mesh::library_version() + ", threads may call it, " +
                           std::to_string(control_.size()) +
                           (control_.size() == 1 ? " rank seen" : " ranks seen");
        if (control_.sum(control_.rank() + 1) != control_.size() * (control_.size() + 1) / 2) {
            throw mesh::AgreedError(base::Status::failed, "a sum over the ranks is wrong");
        }
        if (!topology_.shard_on_one_node()) {
            return text + "; no shared window: ranks are on several nodes";
        }
        const mesh::SharedWindow window(topology_.shard(), base::Bytes{4096 * control_.size()});
        auto* words = reinterpret_cast<std::atomic<std::int64_t>*>(window.data());
        words[512 * control_.rank()].store(control_.rank() + 1);
        control_.barrier();
        control_.together([&] {
            for (int rank = 0; rank < control_.size(); ++rank) {
                if (words[512 * rank].load() != rank + 1) {
                    base::fail("what rank " + std::to_string(rank) +
                               " wrote into a shared window is not seen");
                }
            }
        });
        control_.barrier();
        return text + ", a shared window works";
    }

    // Each rank writes its part of one dataset through MPI-IO; then each reads all, under a lock.
    std::string hdf5() {
        constexpr std::int64_t each = 1000;
        const std::string path = path_ + "/shared.h5", name = path + ": /values";
        const auto all = static_cast<hsize_t>(each * control_.size());
        io::File file = io::create_shared(path, control_.comm());
        const io::Space space(io::check(H5Screate_simple(1, &all, nullptr), "describe " + name));
        io::Dataset dataset(
            io::check(H5Dcreate2(file.handle(), "values", H5T_NATIVE_INT64, space.handle(),
                                 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                      "create " + name));
        std::vector<std::int64_t> values(each, control_.rank() + 1);
        control_.together([&] {
            io::write_range(dataset, each * control_.rank(), base::View<const std::int64_t>(values),
                            name);
        });
        dataset = {};
        io::close(file, path);
        control_.barrier();
        control_.together([&] {
            const io::File read = io::open_input(path, "file");
            const io::Dataset stored(
                io::check(H5Dopen2(read.handle(), "values", H5P_DEFAULT), "open " + name));
            std::vector<std::int64_t> found(all);
            io::read_range(stored, 0, base::View<std::int64_t>(found), name);
            for (std::size_t i = 0; i < found.size(); ++i) {
                if (found[i] != static_cast<std::int64_t>(i) / each + 1) {
                    base::fail(name + "[" + std::to_string(i) + "] is not what was written");
                }
            }
        });
        return io::library_version() + ", " + std::to_string(all) +
               " values written through MPI-IO by all ranks, read back by each";
    }

    // Opening a library tries its products of every kind against plain sums.
    std::string products(const std::string& library) {
        const std::string level = kernels::supported_core_level();
        const bool needed = kernels::fastest_products(level).library == library;
        std::string found;
        control_.together([&] {
            try {
                const auto device = device::make_host_device(1);
                found = kernels::make_host_kernels(*device, 1, {library, level})->product_name() +
                        " agrees with plain loops";
            } catch (const base::Error& error) {
                const std::string why = error.what();
                if (needed || why.find("cannot load ") != 0) {
                    throw;
                }
                found = "is not installed, and another is preferred here";
            }
        });
        return found;
    }

    // A kernel of vector loops, at the instruction set that is chosen here.
    std::string kernels() {
        const std::string level = kernels::supported_core_level();
        control_.together([&] {
            constexpr std::size_t n = 37; // no multiple of a vector's length
            std::vector<float> x(n), w(n, 0.5F), y(n);
            double squares = 0;
            for (std::size_t i = 0; i < n; ++i) {
                x[i] = 0.25F * static_cast<float>(i) - 3.0F;
                squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            }
            const auto device = device::make_host_device(1);
            const auto library = kernels::fastest_products(level).library;
            const auto kernels = kernels::make_host_kernels(*device, 1, {library, level});
            { // the stream ends when its work is done
                const auto stream = device->stream("self-test", device::Priority::normal);
                kernels->rms_norm(x, base::slab(base::View<float>(w)), 1e-5F,
                                  base::slab(base::View<float>(y)), *stream);
            }
            const double scale = 0.5 / std::sqrt(squares / n + 1e-5);
            for (std::size_t i = 0; i < n; ++i) {
                if (!(std::abs(y[i] - scale * x[i]) <= 1e-6)) {
                    base::fail("a norm is wrong at entry " + std::to_string(i));
                }
            }
        });
        return level + " vectors agree with plain loops";
    }

    std::string inputs() {
        control_.together([&] {
            if (control_.first()) {
                write_known_model(path_ + "/model.h5");
                write_known_documents(path_ + "/documents.h5");
            }
        });
        return "a model whose answer is known, and documents for it";
    }

    std::vector<std::string> transports() const {
        if (control_.size() == 1) {
            return {"auto"};
        }
        return topology_.shard_on_one_node() ? std::vector<std::string>{"mpi", "shared"}
                                             : std::vector<std::string>{"mpi"};
    }

    std::vector<float> score_once(const std::string& transport, int depth) {
        const std::string out = path_ + "/" + transport + "-" + std::to_string(depth) + ".h5";
        const deck::Deck deck = deck::Deck::parse(
            "", "self-test",
            {"--job.name=score", "--model.weights=" + path_ + "/model.h5",
             "--data.tokens=" + path_ + "/documents.h5", "--output.file=" + out, "--batch.tokens=4",
             "--device.kind=host", "--device.threads=1", "--comm.transport=" + transport,
             "--fsdp.forward_prefetch=" + std::to_string(depth)});
        {
            const Silence silence;
            score(deck, start_);
        }
        control_.barrier();
        std::vector<float> logprob(6);
        control_.together([&] {
            const io::File file = io::open_input(out, "results file");
            const io::Dataset stored(io::check(
                H5Dopen2(file.handle(), "score/logprob", H5P_DEFAULT), "open scores of " + out));
            io::read_range(stored, 0, base::View<float>(logprob), out + ": /score/logprob");
        });
        return logprob;
    }

    std::string scores(const std::string& transport) {
        const std::vector<float> plain = score_once(transport, 0);
        const std::vector<float> ahead = score_once(transport, 1);
        double nll = 0;
        int scored = 0;
        bool same = true;
        for (std::size_t i = 0; i < plain.size(); ++i) {
            const bool none = std::isnan(plain[i]);
            same = same && (none ? std::isnan(ahead[i]) : plain[i] == ahead[i]);
            nll -= none ? 0.0 : static_cast<double>(plain[i]);
            scored += none ? 0 : 1;
        }
        const double perplexity = std::exp(nll / std::max(scored, 1));
        char text[80];
        std::snprintf(text, sizeof(text), "perplexity %.7f of %d tokens", perplexity, scored);
        if (scored != 4 || !(std::abs(perplexity - std::sqrt(8.0)) < 1e-6)) {
            throw mesh::AgreedError(base::Status::failed,
                                    std::string(text) + "; it must be 2.8284271 of 4");
        }
        if (!same) {
            throw mesh::AgreedError(base::Status::failed,
                                    std::string(text) + "; depths 0 and 1 differ in their bits");
        }
        return std::string(text) + ", equal bits at prefetch depths 0 and 1";
    }

    const Start& start_;
    mesh::Topology topology_;
    mesh::Control control_;
    std::optional<Folder> folder_; // rank 0
    std::string path_;
    int checks_ = 0, failed_ = 0;
};

} // namespace

base::Status self_test(const Start& start) { return SelfTest(start).run(); }

} // namespace foregather::job
