// SPDX-License-Identifier: Apache-2.0
// HDF5's handles, owned; its return codes, checked with its own error stack; files opened and made.
// It knows no layout of ours: weights_file, token_file and results_file do. Main thread only.
#pragma once

#include <concepts>
#include <string>

#include <hdf5.h>

#include <foregather/base/error.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::io {

template <auto close_handle>
struct H5Closer {
    static hid_t null() { return H5I_INVALID_HID; }
    void operator()(hid_t handle) const noexcept { close_handle(handle); }
};
// As H5Fclose, which must not be called by itself: whether it ever failed is remembered.
herr_t close_file(hid_t handle) noexcept;
// Whether closing a file has failed in this process. HDF5 then holds the rest of one, and crashes
// when it is shut down, which MPI_Finalize does: such a process must end without.
bool close_has_failed() noexcept;

using File = base::Unique<hid_t, H5Closer<close_file>>;
using Group = base::Unique<hid_t, H5Closer<H5Gclose>>;
using Dataset = base::Unique<hid_t, H5Closer<H5Dclose>>;
using Space = base::Unique<hid_t, H5Closer<H5Sclose>>;
using Type = base::Unique<hid_t, H5Closer<H5Tclose>>;
using Plist = base::Unique<hid_t, H5Closer<H5Pclose>>;
using Attribute = base::Unique<hid_t, H5Closer<H5Aclose>>;
using Object = base::Unique<hid_t, H5Closer<H5Oclose>>;

// Throws Error(status): "HDF5 failed to <attempted>: <its error stack, innermost first>", with
// advice where the stack shows that a lock was refused, or the like: one line. Empties the stack.
[[noreturn]] void raise_h5(const std::string& attempted, base::Status status, base::Where where);

// Passes on a return code of HDF5 (hid_t, herr_t, htri_t, sizes), or throws Error(status) when it
// is negative. `attempted` completes "HDF5 failed to ...", and names file and dataset.
template <std::signed_integral Code>
Code check(Code code, const std::string& attempted, base::Status status = base::Status::failed,
           base::Where where = base::Where::here()) {
    if (code < 0) {
        raise_h5(attempted, status, where);
    }
    return code;
}

// HDF5's version: "1.10.8".
std::string library_version();

// Brings what HDF5 holds of a file to the file system; may last. `name` completes "HDF5 failed to
// flush ...". Through MPI-IO this is collective as well.
void flush(const File& file, const std::string& name);

// Closes a file now, so that a failure is seen; the destructor of File cannot report one. Through
// MPI-IO this is collective over the communicator that opened the file.
void close(File& file, const std::string& path);

// Opens for reading, by this process alone (POSIX driver), so that other jobs may read it as well.
// Throws Error(refused) naming `kind` ("weights file"), the path and the reason; and `maker`, the
// tool that makes such files, if it is told, when this one is no HDF5 file.
File open_input(const std::string& path, const std::string& kind, const std::string& maker = "");

// Creates or truncates, through MPI-IO, with format bounds v110. Collective over `comm`. MPI-IO
// also for one process: with these bounds the POSIX driver would mark the file as open for writing,
// and a killed run would leave the mark behind.
File create_shared(const std::string& path, MPI_Comm comm);
// Opens an existing file for reading and writing, through MPI-IO. Collective over `comm`.
File open_shared(const std::string& path, MPI_Comm comm);

// Object creation properties without time stamps, so that equal content gives equal files.
// `property_class` is H5P_FILE_CREATE, H5P_DATASET_CREATE or H5P_GROUP_CREATE.
Plist timeless(hid_t property_class);

} // namespace foregather::io
