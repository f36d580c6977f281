// SPDX-License-Identifier: Apache-2.0
// Files for the tests of io, written with the plain C API: what other programs would write, faults
// included. It uses nothing of the code under test but owned handles.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <foregather/io/h5.hpp>

namespace foregather::io::testing {

inline hid_t good(hid_t code) {
    if (code < 0) {
        throw std::runtime_error("HDF5 failed in a test's own preparation");
    }
    return code;
}

// A directory that goes with its owner.
class Directory {
public:
    Directory() {
        std::string name =
            (std::filesystem::temp_directory_path() / "foregather-io-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot make a temporary directory");
        }
        path_ = name;
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

// A file being written by this process alone.
class Writer {
public:
    explicit Writer(const std::string& path)
        : file_(good(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT))),
          links_(good(H5Pcreate(H5P_LINK_CREATE))) {
        H5Pset_create_intermediate_group(links_.handle(), 1);
    }
    hid_t handle() const { return file_.handle(); }
    hid_t links() const { return links_.handle(); }

    Dataset create(const std::string& name, hid_t type, const std::vector<hsize_t>& shape,
                   hid_t creation = H5P_DEFAULT) {
        const Space space(good(shape.empty() ? H5Screate(H5S_SCALAR)
                                             : H5Screate_simple(static_cast<int>(shape.size()),
                                                                shape.data(), nullptr)));
        return Dataset(good(H5Dcreate2(handle(), name.c_str(), type, space.handle(),
                                       links_.handle(), creation, H5P_DEFAULT)));
    }
    // Values as they lie in memory in `memory_type`.
    template <class T>
    void put(const std::string& name, hid_t type, hid_t memory_type,
             const std::vector<hsize_t>& shape, const std::vector<T>& values,
             hid_t creation = H5P_DEFAULT) {
        const Dataset dataset = create(name, type, shape, creation);
        good(H5Dwrite(dataset.handle(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    }
    void integers(const std::string& name, hid_t type, const std::vector<std::int64_t>& values) {
        put(name, type, H5T_NATIVE_INT64, {values.size()}, values);
    }
    // A scalar string as h5py writes it: variable in length.
    void text(const std::string& name, const std::string& value) {
        const Type type = variable();
        const Dataset dataset = create(name, type.handle(), {});
        const char* pointer = value.c_str();
        good(H5Dwrite(dataset.handle(), type.handle(), H5S_ALL, H5S_ALL, H5P_DEFAULT, &pointer));
    }
    void attribute(const std::string& name, const std::string& value) {
        const Type type = variable();
        const char* pointer = value.c_str();
        put_attribute(name, type.handle(), &pointer);
    }
    void attribute(const std::string& name, std::int64_t value) {
        put_attribute(name, H5T_NATIVE_INT64, &value);
    }

private:
    static Type variable() {
        Type type(good(H5Tcopy(H5T_C_S1)));
        H5Tset_size(type.handle(), H5T_VARIABLE);
        return type;
    }
    void put_attribute(const std::string& name, hid_t type, const void* value) {
        const Space space(good(H5Screate(H5S_SCALAR)));
        const Attribute created(good(
            H5Acreate2(handle(), name.c_str(), type, space.handle(), H5P_DEFAULT, H5P_DEFAULT)));
        good(H5Awrite(created.handle(), type, value));
    }

    File file_;
    Plist links_;
};

// bfloat16 as a 16-bit HDF5 float, made here independently of the code under test.
inline Type bfloat16() {
    Type type(good(H5Tcopy(H5T_IEEE_F32LE)));
    good(H5Tset_fields(type.handle(), 15, 7, 8, 0, 7));
    good(H5Tset_size(type.handle(), 2));
    good(H5Tset_ebias(type.handle(), 127));
    return type;
}
inline Type float16(H5T_order_t order = H5T_ORDER_LE) {
    Type type(good(H5Tcopy(H5T_IEEE_F32LE)));
    good(H5Tset_fields(type.handle(), 15, 10, 5, 0, 10));
    good(H5Tset_size(type.handle(), 2));
    good(H5Tset_ebias(type.handle(), 15));
    good(H5Tset_order(type.handle(), order));
    return type;
}

inline std::string slurp(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}
inline void spill(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

// Expects an Error of this status whose message holds every one of the words.
inline void expect_error(base::Status status, const std::vector<std::string>& words,
                         const std::function<void()>& work) {
    try {
        work();
        ADD_FAILURE() << "nothing was refused";
    } catch (const base::Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        for (const std::string& word : words) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
                << "no \"" << word << "\" in: " << error.what();
        }
    }
}
inline void expect_refused(const std::vector<std::string>& words,
                           const std::function<void()>& work) {
    expect_error(base::Status::refused, words, work);
}

} // namespace foregather::io::testing
