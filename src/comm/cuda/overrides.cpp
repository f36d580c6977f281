// SPDX-License-Identifier: Apache-2.0
// What of NCCL the environment decides.
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <unistd.h>

#include <foregather/comm/nccl_communicator.hpp>

#include "nccl.hpp"

namespace foregather::comm {
namespace {

// Variables that speak louder than what this program tells NCCL, or than one of its keys.
constexpr std::array known = {
    std::pair{"NCCL_COMM_BLOCKING", "overrides that communicators are set up without blocking: "
                                    "comm.timeout may not end a set-up that hangs"},
    std::pair{"NCCL_LAUNCH_MODE", "may launch gathers in another order than they are issued"},
    std::pair{"NCCL_DEBUG", ""},
    std::pair{"NCCL_DEBUG_FILE", ""},
    std::pair{"NCCL_DEBUG_SUBSYS", ""},
};

std::string sentence(const std::string& setting) {
    const std::string name = setting.substr(0, setting.find('='));
    for (const auto& [variable, what] : known) {
        if (name == variable) {
            return *what == '\0' ? "" : setting + " " + what;
        }
    }
    return setting + " is obeyed by NCCL, whatever the deck says";
}

} // namespace

std::vector<std::string> nccl_overrides() {
    std::vector<std::string> told;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (std::strncmp(*entry, "NCCL_", 5) == 0 && *entry != std::string(connect_late) + "=0") {
            if (const std::string text = sentence(*entry); !text.empty()) {
                told.push_back(text);
            }
        }
    }
    const char* home = std::getenv("HOME");
    for (const std::string& file : {std::string("/etc/nccl.conf"),
                                    std::string(home == nullptr ? "" : home) + "/.nccl.conf"}) {
        if (access(file.c_str(), R_OK) == 0) {
            told.push_back(file + " sets parameters of NCCL, whatever the deck says");
        }
    }
    return told;
}

} // namespace foregather::comm
