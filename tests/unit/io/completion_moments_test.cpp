// SPDX-License-Identifier: Apache-2.0
// A run that is killed while it completes its file leaves a PATH.part that opens, at every moment.
// What a kill before the n-th write leaves is what the file holds then: it is copied there.
#include <mpi.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <utility>

#include "results_fixture.hpp"

namespace {
std::function<void(int descriptor)> before_change; // called ahead of all that changes a file

void told(int descriptor) {
    if (before_change) {
        const auto call = std::exchange(before_change, nullptr); // not from within itself
        call(descriptor);
        before_change = call;
    }
}
} // namespace

// These stand before the C library's.
extern "C" {
::ssize_t pwrite(int descriptor, const void* from, std::size_t n, ::off_t at) {
    told(descriptor);
    return ::syscall(SYS_pwrite64, descriptor, from, n, at);
}
::ssize_t pwrite64(int descriptor, const void* from, std::size_t n, ::off64_t at) {
    return pwrite(descriptor, from, n, at);
}
::ssize_t pwritev(int descriptor, const ::iovec* from, int n, ::off_t at) {
    told(descriptor);
    return ::syscall(SYS_pwritev, descriptor, from, n, at, 0);
}
::ssize_t pwritev64(int descriptor, const ::iovec* from, int n, ::off64_t at) {
    return pwritev(descriptor, from, n, at);
}
::ssize_t write(int descriptor, const void* from, std::size_t n) {
    told(descriptor);
    return ::syscall(SYS_write, descriptor, from, n);
}
::ssize_t writev(int descriptor, const ::iovec* from, int n) {
    told(descriptor);
    return ::syscall(SYS_writev, descriptor, from, n);
}
int ftruncate(int descriptor, ::off_t length) noexcept {
    told(descriptor);
    return static_cast<int>(::syscall(SYS_ftruncate, descriptor, length));
}
int ftruncate64(int descriptor, ::off64_t length) noexcept { return ftruncate(descriptor, length); }
}

namespace foregather::io {
namespace {

using namespace testing;

constexpr int closing_texts = 24;

std::string moment(const std::string& part, int n) { return part + "." + std::to_string(n); }

// A run in a process of its own, for the sake of its MPI; ends with status 0 when all went well.
[[noreturn]] void complete_and_copy(const std::string& directory, const std::string& path) {
    try {
        ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
        ::setenv("OMPI_MCA_orte_tmpdir_base", directory.c_str(), 1);
        MPI_Init(nullptr, nullptr);
        const mesh::Control control(MPI_COMM_WORLD);
        const TokenFile tokens(directory + "t.h5");
        ResultsFile file(control, {path, true, "killed"}, ScoreLayout{tokens, 6}, {},
                         {{"/provenance/deck_text", "a deck"}});
        write_share(control, file);
        const Summary summary = file.summarise();
        const Table units{"/timing/units",
                          {{"name", "", "of a unit", std::vector<std::string>{"head", "block"}},
                           {"bytes", "byte", "", std::vector<std::int64_t>{1, 2}}},
                          {{"ranks", std::int64_t{1}}}};
        std::vector<Text> texts;
        for (int i = 0; i < closing_texts; ++i) {
            texts.push_back({"/provenance/a_text_with_long_name" + std::to_string(i), "words"});
        }
        texts.push_back({"/provenance/report", std::string(10000, 'r')});
        const std::string part = file.part_path();
        int n = 0;
        before_change = [&](int) { std::filesystem::copy_file(part, moment(part, n++)); };
        file.finish(summary, {units}, texts);
        before_change = nullptr;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
    }
    ::_exit(0);
}

// Whether everything that a results file holds from its layout on can be read.
void expect_scores(const std::string& file) {
    ASSERT_EQ(all_of<float>(file, "/score/logprob").size(), 15U) << file;
    EXPECT_EQ(all_of<std::uint8_t>(file, "/provenance/packs_done"),
              (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0}));
    EXPECT_EQ(raw_text(file, "/provenance/deck_text"), "a deck");
    number_attribute(file, "/score", "loss");
}

bool has(const std::string& path, const std::string& name) {
    const File file = open_input(path, "file of a test");
    return H5Lexists(file.handle(), name.c_str(), H5P_DEFAULT) > 0;
}

TEST(Completion, f4_leaves_a_file_that_opens_when_killed_before_any_of_its_writes) {
    const Directory directory;
    write_tokens(directory / "t.h5");
    const std::string path = directory / "r.h5", part = path + ".part";
    const ::pid_t child = ::fork();
    if (child == 0) {
        complete_and_copy(directory / "", path);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    const bool tool = std::system("command -v h5dump > /dev/null") == 0;
    int n = 0, with_table = 0, completed = 0;
    for (; std::filesystem::exists(moment(part, n)); ++n) {
        const std::string file = moment(part, n);
        expect_scores(file);
        with_table += has(file, "/timing/units") ? 1 : 0;
        if (number_attribute(file, "/", "complete") != 0.0) {
            ++completed;
            EXPECT_FALSE(std::isnan(number_attribute(file, "/score", "loss")));
            EXPECT_EQ(raw_text(file, "/provenance/report"), std::string(10000, 'r'));
        }
        if (tool) {
            const std::string command = "h5dump '" + file + "' > /dev/null";
            EXPECT_EQ(std::system(command.c_str()), 0);
        }
    }
    // Moments on both sides of each step were seen: before the tables, between, and at the end.
    EXPECT_GT(n, closing_texts);
    EXPECT_GT(with_table, completed);
    EXPECT_LT(with_table, n);
    expect_scores(path);
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
}

} // namespace
} // namespace foregather::io
