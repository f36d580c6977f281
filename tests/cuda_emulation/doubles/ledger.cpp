// SPDX-License-Identifier: Apache-2.0
// Figures, reports and injected failures, and the report file that each process leaves when it
// ends. It decides nothing about CUDA. Tests only.
#include "ledger.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include <unistd.h>

#include "control.hpp"

namespace foregather::emulation {
namespace {

constexpr int strict_status = 97;

struct Failure {
    std::string function;
    std::int64_t call = 0;
};

struct Ledger {
    std::mutex mutex;
    std::map<std::string, std::int64_t> figures;
    std::vector<Failure> failures;
    bool failures_read = false;
};

// Never destroyed: workers may still count while the process ends.
Ledger& ledger() {
    static auto* const the = new Ledger;
    return *the;
}

void write_report() {
    const std::string base = setting("FOREGATHER_EMULATION_REPORT");
    if (base.empty()) {
        return;
    }
    const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
    const std::string path = base + "." + std::to_string(launched ? world_rank() : ::getpid());
    const std::lock_guard lock(ledger().mutex);
    ledger().figures.try_emplace("reports", 0);
    std::ofstream file(path);
    for (const auto& [name, value] : ledger().figures) {
        file << name << ' ' << value << '\n';
    }
    if (!file.flush()) {
        std::fprintf(stderr, "emulation: cannot write %s\n", path.c_str());
    }
}

struct AtEnd {
    ~AtEnd() { write_report(); }
} const at_end;

// "name:call[@rank]", several separated by commas.
std::vector<Failure> wanted_failures() {
    std::vector<Failure> all;
    std::istringstream text(setting("FOREGATHER_EMULATION_FAIL"));
    for (std::string item; std::getline(text, item, ',');) {
        const auto colon = item.rfind(':');
        if (colon == std::string::npos) {
            std::fprintf(stderr, "emulation: FOREGATHER_EMULATION_FAIL: no ':' in '%s'\n",
                         item.c_str());
            std::_Exit(strict_status);
        }
        const auto at = item.find('@', colon);
        if (at == std::string::npos || std::stoi(item.substr(at + 1)) == world_rank()) {
            all.push_back({item.substr(0, colon), std::stoll(item.substr(colon + 1))});
        }
    }
    return all;
}

} // namespace

std::string setting(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::int64_t setting(const char* name, std::int64_t otherwise) {
    const std::string value = setting(name);
    return value.empty() ? otherwise : std::stoll(value);
}

int world_rank() { return static_cast<int>(setting("OMPI_COMM_WORLD_RANK", 0)); }

std::optional<std::int64_t> ranked_setting(const char* name) {
    const std::string value = setting(name);
    if (value.empty()) {
        return std::nullopt;
    }
    const auto at = value.find('@');
    if (at != std::string::npos && std::stoi(value.substr(at + 1)) != world_rank()) {
        return std::nullopt;
    }
    return std::stoll(value);
}

void count(const std::string& name, std::int64_t by) {
    const std::lock_guard lock(ledger().mutex);
    ledger().figures[name] += by;
}

void peak(const std::string& name, std::int64_t value) {
    const std::lock_guard lock(ledger().mutex);
    auto& figure = ledger().figures[name];
    figure = figure < value ? value : figure;
}

std::int64_t counted(const std::string& name) {
    const std::lock_guard lock(ledger().mutex);
    const auto found = ledger().figures.find(name);
    return found == ledger().figures.end() ? 0 : found->second;
}

bool fails_now(const std::string& function) {
    Ledger& the = ledger();
    const std::lock_guard lock(the.mutex);
    if (!the.failures_read) {
        the.failures = wanted_failures();
        the.failures_read = true;
    }
    const std::int64_t call = ++the.figures["call." + function];
    for (const Failure& failure : the.failures) {
        if (failure.function == function && failure.call == call) {
            ++the.figures["injected"];
            std::fprintf(stderr, "emulation: call %lld of %s is made to fail\n",
                         static_cast<long long>(call), function.c_str());
            return true;
        }
    }
    return false;
}

void report(const std::string& kind, const std::string& text) {
    count("reports");
    count("reports." + kind);
    std::fprintf(stderr, "emulation: %s: %s\n", kind.c_str(), text.c_str());
    if (setting("FOREGATHER_EMULATION_STRICT", 0) != 0) {
        write_report();
        std::_Exit(strict_status);
    }
}

void not_modelled(const std::string& what) {
    count("not_modelled");
    std::fprintf(stderr, "emulation: not modelled: %s\n", what.c_str());
}

void restart_ledger() {
    const std::lock_guard lock(ledger().mutex);
    ledger().figures.clear();
    ledger().failures_read = false;
}

} // namespace foregather::emulation
