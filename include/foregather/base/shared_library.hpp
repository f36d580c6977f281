// SPDX-License-Identifier: Apache-2.0
// A library opened at run time and its functions. It stays loaded to the end of the process.
#pragma once

#include <string>

#include <dlfcn.h>

#include <foregather/base/error.hpp>

namespace foregather::base {

class SharedLibrary {
public:
    // `purpose` completes "cannot load FILE, which ...". Throws Error(refused) with the loader's
    // reason and `advice`.
    SharedLibrary(std::string file, const std::string& purpose, std::string advice)
        : file_(std::move(file)), advice_(std::move(advice)),
          handle_(dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) {
            const char* reason = dlerror();
            base::refuse("cannot load " + file_ + ", which " + purpose + ": " +
                         (reason == nullptr ? "no reason given" : reason) + "; " + advice_);
        }
    }

    const std::string& file() const { return file_; }

    template <class Function>
    Function find(const char* name) const { // null if it has none
        return reinterpret_cast<Function>(dlsym(handle_, name));
    }
    template <class Function>
    Function function(const char* name) const { // or throws Error(refused)
        const auto found = find<Function>(name);
        if (found == nullptr) {
            base::refuse(file_ + " has no function " + name + ", which this program needs; " +
                         advice_);
        }
        return found;
    }

private:
    std::string file_, advice_;
    void* handle_;
};

} // namespace foregather::base
