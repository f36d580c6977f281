// SPDX-License-Identifier: Apache-2.0
// main() of every test program that runs under mpirun: rank 0 prints for all, the verdict is the
// worst of any rank, and a watchdog names a test that hangs. It decides nothing about what is
// tested.
#include "mpi_test.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

namespace foregather::tests {
namespace {

using namespace std::chrono_literals;

constexpr int report_tag = 1;
constexpr int exit_watchdog = 3;

struct {
    MPI_Comm comm =
        MPI_COMM_NULL; // of the harness alone, so that no test's messages mix with its own
    int rank = 0;
    int ranks = 1;
} world;

void must(int rc, const char* attempted) {
    if (rc != MPI_SUCCESS) {
        std::fprintf(stderr, "test harness: rank %d: MPI failed to %s\n", rank(), attempted);
        MPI_Abort(MPI_COMM_WORLD, exit_watchdog);
    }
}

// Waits with sleeps: ranks that are done must not take cores from those that still measure.
void wait(MPI_Request request) {
    for (int done = 0; done == 0;) {
        must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "wait for the other ranks");
        if (done == 0) {
            std::this_thread::sleep_for(200us);
        }
    }
}

std::int64_t reduced(std::int64_t value, MPI_Op op) {
    std::int64_t all = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Iallreduce(&value, &all, 1, MPI_INT64_T, op, world.comm, &request), "reduce a number");
    wait(request);
    return all;
}

// Aborts the job, with a line that names the test, when enter() is not called again in time.
class Watchdog {
public:
    explicit Watchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { run(); }) {}
    ~Watchdog() {
        enter("");
        thread_.join();
    }

    void enter(const std::string& what) { // "" ends it
        const std::lock_guard lock(mutex_);
        what_ = what;
        ++entered_;
        changed_.notify_one();
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        while (!what_.empty()) {
            const auto seen = entered_;
            if (!changed_.wait_for(lock, limit_, [&] { return entered_ != seen; })) {
                std::fprintf(stderr, "watchdog: rank %d of %d has been %s for %lld s\n", rank(),
                             ranks(), what_.c_str(), static_cast<long long>(limit_.count()));
                std::this_thread::sleep_for(1s); // for the other ranks' lines
                MPI_Abort(MPI_COMM_WORLD, exit_watchdog);
                std::_Exit(exit_watchdog);
            }
        }
    }

    std::chrono::seconds limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string what_ = "starting";
    std::int64_t entered_ = 0;
    std::thread thread_; // last: it uses all of the above
};

std::string report_of(const testing::TestResult& result) {
    std::string text;
    for (int i = 0; i < result.total_part_count(); ++i) {
        const testing::TestPartResult& part = result.GetTestPartResult(i);
        if (part.failed()) {
            text += std::string(part.file_name() == nullptr ? "(no file)" : part.file_name()) +
                    ":" + std::to_string(part.line_number()) + ": " + part.message() + "\n";
        }
    }
    return text;
}

std::string received_from(int source) {
    MPI_Status status;
    for (int there = 0; there == 0;) {
        must(MPI_Iprobe(source, report_tag, world.comm, &there, &status), "look for a report");
        if (there == 0) {
            std::this_thread::sleep_for(200us);
        }
    }
    int length = 0;
    must(MPI_Get_count(&status, MPI_CHAR, &length), "size a report");
    std::string text(static_cast<std::size_t>(length), '\0');
    must(MPI_Recv(text.data(), length, MPI_CHAR, source, report_tag, world.comm, MPI_STATUS_IGNORE),
         "receive a report");
    return text;
}

// Turns failures of other ranks into failures of rank 0, in the order of ranks, at the end of each
// test.
class Referee final : public testing::EmptyTestEventListener {
public:
    explicit Referee(Watchdog& watchdog) : watchdog_(watchdog) {}

    void OnTestStart(const testing::TestInfo& info) override {
        watchdog_.enter(std::string("in ") + name_of(info));
        const auto key = static_cast<std::int64_t>(std::hash<std::string>{}(name_of(info)) >> 1);
        if (!equal_everywhere(key)) {
            std::fprintf(stderr,
                         "test harness: rank %d: ranks run different tests; here it is %s\n",
                         rank(), name_of(info).c_str());
            MPI_Abort(MPI_COMM_WORLD, exit_watchdog);
        }
    }

    void OnTestEnd(const testing::TestInfo& info) override {
        watchdog_.enter("at the end of " + name_of(info) + ", waiting for the other ranks,");
        const testing::TestResult& result = *info.result();
        if (rank() > 0) {
            const std::string report = report_of(result);
            MPI_Request request = MPI_REQUEST_NULL;
            must(MPI_Isend(report.data(), static_cast<int>(report.size()), MPI_CHAR, 0, report_tag,
                           world.comm, &request),
                 "send a report");
            wait(request);
        }
        for (int r = 1; rank() == 0 && r < ranks(); ++r) {
            if (const std::string report = received_from(r); !report.empty()) {
                ADD_FAILURE() << "rank " << r << " of " << ranks() << ":\n" << report;
            }
        }
        if (!equal_everywhere(result.Skipped() ? 1 : 0)) {
            ADD_FAILURE() << "some ranks skipped this test and others did not; rank " << rank()
                          << (result.Skipped() ? " did" : " did not");
        }
        watchdog_.enter("between tests");
    }

private:
    static std::string name_of(const testing::TestInfo& info) {
        return std::string(info.test_suite_name()) + "." + info.name();
    }

    Watchdog& watchdog_;
};

int run_all() {
    const char* limit = std::getenv("FOREGATHER_TEST_TIMEOUT");
    Watchdog watchdog(std::chrono::seconds(limit == nullptr ? 60 : std::atoi(limit)));
    // A seed of 0 would be each rank's own clock.
    const std::int64_t seed = reduced(rank() == 0 ? std::time(nullptr) % 99999 + 1 : 0, MPI_MAX);
    if (GTEST_FLAG_GET(random_seed) == 0) {
        GTEST_FLAG_SET(random_seed, static_cast<std::int32_t>(seed));
    }
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (rank() > 0) {
        delete listeners.Release(listeners.default_result_printer());
        delete listeners.Release(listeners.default_xml_generator());
    }
    listeners.Append(new Referee(watchdog));
    const int verdict = static_cast<int>(reduced(RUN_ALL_TESTS(), MPI_MAX));
    watchdog.enter("finishing");
    must(MPI_Comm_free(&world.comm), "free the harness's communicator");
    must(MPI_Finalize(), "finalize");
    return verdict;
}

} // namespace

int rank() { return world.rank; }

int ranks() { return world.ranks; }

bool fewer_than(int needed) { return ranks() < needed; }

bool agree(bool mine) { return reduced(mine ? 1 : 0, MPI_MIN) == 1; }

bool equal_everywhere(std::int64_t mine) {
    return reduced(mine, MPI_MIN) == reduced(mine, MPI_MAX);
}

} // namespace foregather::tests

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    testing::InitGoogleTest(&argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    auto& world = foregather::tests::world;
    if (provided < MPI_THREAD_MULTIPLE ||
        MPI_Comm_dup(MPI_COMM_WORLD, &world.comm) != MPI_SUCCESS ||
        MPI_Comm_rank(world.comm, &world.rank) != MPI_SUCCESS ||
        MPI_Comm_size(world.comm, &world.ranks) != MPI_SUCCESS) {
        std::fputs("test harness: needs an MPI with MPI_THREAD_MULTIPLE\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, foregather::tests::exit_watchdog);
    }
    return foregather::tests::run_all();
}
