// SPDX-License-Identifier: Apache-2.0
// Files that are no weights files, and what is said of each.
#include <foregather/io/weights_file.hpp>

#include <sys/syscall.h>

#include <cerrno>

#include "h5_fixture.hpp"

namespace {
int flock_error = 0; // what the next locks fail with; 0: they do not
}

// Stands before the C library's, so that a file system without locks can be had anywhere.
extern "C" int flock(int descriptor, int operation) {
    if (flock_error != 0) {
        errno = flock_error;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

namespace foregather::io {
namespace {

using testing::Directory;
using testing::expect_refused;
using testing::good;
using testing::Writer;

class WeightsRefusals : public ::testing::Test {
protected:
    // A file that is good but for what `spoil` adds.
    void write(const std::function<void(Writer&)>& spoil) {
        Writer file(path);
        file.attribute("format", "foregather.weights");
        file.attribute("format_version", std::int64_t{1});
        file.text("config", "{}");
        file.put("/weights/good", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2}, std::vector<float>{1, 2});
        spoil(file);
    }
    void expect(std::vector<std::string> words) {
        words.push_back(path);
        expect_refused(words, [&] { WeightsFile{path}; });
    }

    const Directory directory;
    const std::string path = directory / "w.h5";
};

const std::vector<float> four{1, 2, 3, 4};

TEST_F(WeightsRefusals, file_that_is_missing) { expect({"No such file", "weights file"}); }

TEST_F(WeightsRefusals, directory_in_its_place) {
    std::filesystem::create_directory(path);
    expect({"not a regular file", "make it with tools/import_model"});
}

TEST_F(WeightsRefusals, file_that_is_not_hdf5) {
    testing::spill(path, "PK\3\4 a zip file");
    expect({"not an HDF5 file", "make it with tools/import_model"});
}

TEST_F(WeightsRefusals, file_that_is_cut_off) {
    write([](Writer& f) {
        f.put("/weights/long", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5000}, std::vector<float>(5000));
    });
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1000);
    expect({"truncated file", "shorter than its own header"});
}

TEST_F(WeightsRefusals, f1_file_system_without_locks) {
    if (std::getenv("HDF5_USE_FILE_LOCKING") != nullptr) {
        GTEST_SKIP() << "HDF5_USE_FILE_LOCKING is set";
    }
    write([](Writer&) {});
    for (const int error : {EAGAIN, ENOLCK, EOPNOTSUPP}) {
        flock_error = error;
        expect({"unable to lock file", "errno = " + std::to_string(error),
                error == EAGAIN ? "another job has the file open" : "HDF5_USE_FILE_LOCKING=FALSE"});
        flock_error = 0;
    }
    // Builds with best-effort locking pass over ENOSYS by themselves, others stop at it.
    flock_error = ENOSYS;
    try {
        EXPECT_EQ(WeightsFile{path}.tensors().size(), 1U);
    } catch (const base::Error& error) {
        EXPECT_NE(std::string(error.what()).find("HDF5_USE_FILE_LOCKING=FALSE"), std::string::npos);
    }
    flock_error = 0;
    EXPECT_NO_THROW(WeightsFile{path});
}

TEST_F(WeightsRefusals, format_that_is_absent_or_another) {
    { Writer file(path); }
    expect({"no attribute format", "make it with tools/import_model"});
    {
        Writer file(path);
        file.attribute("format", "foregather.results");
    }
    expect({"format \"foregather.results\"", "\"foregather.weights\" is needed"});
    {
        Writer file(path);
        file.attribute("format", std::int64_t{3});
    }
    expect({"attribute format", "must hold one string", "int64"});
}

TEST_F(WeightsRefusals, version_that_is_absent_or_newer) {
    {
        Writer file(path);
        file.attribute("format", "foregather.weights");
    }
    expect({"no attribute format_version"});
    {
        Writer file(path);
        file.attribute("format", "foregather.weights");
        file.attribute("format_version", std::int64_t{2});
    }
    expect({"format_version 2", "reads version 1"});
}

TEST_F(WeightsRefusals, config_that_is_missing_or_no_text) {
    const auto begin = [&](Writer& file) {
        file.attribute("format", "foregather.weights");
        file.attribute("format_version", std::int64_t{1});
    };
    {
        Writer file(path);
        begin(file);
    }
    expect({"/config is missing"});
    {
        Writer file(path);
        begin(file);
        file.integers("config", H5T_STD_I32LE, {1, 2});
    }
    expect({"/config must hold one string", "int32"});
    {
        Writer file(path);
        begin(file);
        file.put("/config/inner", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four);
    }
    expect({"/config must be a dataset"});
    {
        Writer file(path);
        begin(file);
        good(H5Lcreate_external("other.h5", "/config", file.handle(), "config", H5P_DEFAULT,
                                H5P_DEFAULT));
    }
    expect({"/config is a link into another file"});
}

TEST_F(WeightsRefusals, weights_that_are_missing_or_linked) {
    {
        Writer file(path);
        file.attribute("format", "foregather.weights");
        file.attribute("format_version", std::int64_t{1});
        file.text("config", "{}");
    }
    expect({"/weights is missing"});
    {
        Writer file(path);
        file.attribute("format", "foregather.weights");
        file.attribute("format_version", std::int64_t{1});
        file.text("config", "{}");
        good(H5Lcreate_external("other.h5", "/weights", file.handle(), "weights", H5P_DEFAULT,
                                H5P_DEFAULT));
    }
    expect({"/weights is a link into another file"});
}

TEST_F(WeightsRefusals, types_that_are_no_weights_are_all_listed_at_once) {
    const Type big_half = testing::float16(H5T_ORDER_BE);
    write([&](Writer& f) {
        f.put("/weights/a/double", H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, {4}, four);
        f.put("/weights/a/int", H5T_STD_I8LE, H5T_NATIVE_FLOAT, {4}, four);
        f.put("/weights/b/big", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, {4}, four);
        f.put("/weights/b/big_half", big_half.handle(), H5T_NATIVE_FLOAT, {4}, four);
        f.put("/weights/c/scalar", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {}, four);
    });
    expect({"/weights/a/double has type float64", "/weights/a/int has type int8",
            "/weights/b/big has type float32 (big-endian)",
            "/weights/b/big_half has type float16 (big-endian)",
            "/weights/c/scalar is a single value"});
}

TEST_F(WeightsRefusals, sixteen_bits_with_other_fields_are_not_bfloat16) {
    Type odd(H5Tcopy(H5T_IEEE_F32LE));
    good(H5Tset_fields(odd.handle(), 15, 9, 6, 0, 9));
    good(H5Tset_size(odd.handle(), 2));
    good(H5Tset_ebias(odd.handle(), 31));
    Type biased = testing::bfloat16();
    good(H5Tset_ebias(biased.handle(), 126));
    write([&](Writer& f) {
        f.create("/weights/odd", odd.handle(), {4});
        f.create("/weights/biased", biased.handle(), {4});
    });
    expect({"/weights/odd has type float16 with 6 exponent and 9 mantissa bits, bias 31",
            "/weights/biased has type float16 with 8 exponent and 7 mantissa bits, bias 126"});
}

TEST_F(WeightsRefusals, storage_elsewhere_or_filtered) {
    const auto creation = [] { return Plist(good(H5Pcreate(H5P_DATASET_CREATE))); };
    const hsize_t chunk = 2, extent = 4;
    const Plist packed = creation(), chunked = creation(), compact = creation(),
                outside = creation(), virtual_ = creation();
    good(H5Pset_chunk(packed.handle(), 1, &chunk));
    good(H5Pset_shuffle(packed.handle()));
    good(H5Pset_fletcher32(packed.handle()));
    good(H5Pset_chunk(chunked.handle(), 1, &chunk));
    good(H5Pset_layout(compact.handle(), H5D_COMPACT));
    good(H5Pset_external(outside.handle(), (directory / "data.bin").c_str(), 0, H5F_UNLIMITED));
    const Space all(good(H5Screate_simple(1, &extent, nullptr)));
    good(H5Pset_virtual(virtual_.handle(), all.handle(), "other.h5", "x", all.handle()));
    write([&](Writer& f) {
        f.put("/weights/packed", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four, packed.handle());
        f.put("/weights/chunked", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four, chunked.handle());
        f.put("/weights/compact", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four, compact.handle());
        f.put("/weights/outside", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four, outside.handle());
        f.create("/weights/virtual", H5T_IEEE_F32LE, {4}, virtual_.handle());
    });
    expect({"/weights/packed is stored through a filter (shuffle, fletcher32)",
            "/weights/chunked has a chunked layout", "/weights/compact has a compact layout",
            "/weights/outside has its data in an external file, " + (directory / "data.bin"),
            "/weights/virtual is a virtual dataset"});
}

TEST_F(WeightsRefusals, h1_tensors_that_were_never_written) {
    write([](Writer& f) { f.create("/weights/empty", H5T_IEEE_F32LE, {4, 4}); });
    expect({"/weights/empty holds no data"});
}

TEST_F(WeightsRefusals, links_and_names_that_lead_elsewhere) {
    write([](Writer& f) {
        good(H5Lcreate_external("other.h5", "/x", f.handle(), "/weights/away", f.links(),
                                H5P_DEFAULT));
        good(H5Lcreate_soft("/weights/good", f.handle(), "/weights/soft", f.links(), H5P_DEFAULT));
        f.put("/weights/model.norm", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4}, four);
        good(H5Lcreate_hard(f.handle(), "/weights", f.handle(), "/weights/loop", f.links(),
                            H5P_DEFAULT));
        good(H5Tcommit2(f.handle(), "/weights/type", Type(H5Tcopy(H5T_IEEE_F32LE)).handle(),
                        f.links(), H5P_DEFAULT, H5P_DEFAULT));
    });
    expect({"/weights/away is a link into another file", "/weights/soft is a soft link",
            "/weights/model.norm has a dot in its name", "nested too deeply",
            "/weights/type is neither a group nor a dataset"});
}

} // namespace
} // namespace foregather::io
