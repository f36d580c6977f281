// SPDX-License-Identifier: Apache-2.0
// Help and templates, made from the key table.
// It decides their layout; what they say of a key is in sections.cpp and convert.cpp.
#include "help.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

#include "nearest.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

constexpr std::size_t width = 90;

// Of all its jobs, or of one.
std::string default_of(const KeyInfo& info, std::string_view job = "") {
    if (info.required_by == "all" || (!job.empty() && info.is_required_by(job))) {
        return "none; must be given";
    }
    const std::string value = info.default_text.empty() ? "empty" : info.default_text;
    const bool some = job.empty() && !info.required_by.empty();
    return value + (some ? "; must be given for " + info.required_by : "");
}

std::string entry_of(const KeyInfo& info) {
    return info.key + "\n" + wrapped(info.help, "    ", width) +
           wrapped("Takes:   " + info.type, "    ", width) +
           (info.unit.empty() ? "" : "    Unit:    " + info.unit + "\n") +
           "    Default: " + default_of(info) + "\n    Jobs:    " + info.jobs + "\n";
}

std::string overview() {
    return usage_text() +
           "\n\n"
           "  DECK              run the job that the deck names\n"
           "  --check DECK      resolve and print the deck and the memory plan, for N ranks\n"
           "                    without starting them\n"
           "  --template JOB    print a commented deck with every key of the job\n"
           "                    (" +
           joined(all_jobs(), ", ") +
           ")\n"
           "  --help            this text; of a section or of a key where one is named\n"
           "  --version         version and what it was built with\n"
           "  --self-test       try MPI, HDF5, products, kernels and a tiny job on the host, also\n"
           "                    under mpirun; files only in a temporary folder (TMPDIR), removed\n"
           "\n"
           "Exit status, the same on every rank: 0 done; 1 failed while running; 2 refused before\n"
           "any work; 3 ran, but something that the deck asked for was not honoured; 75 stopped\n"
           "early, by a signal or near its time limit: submit again to go on.\n"
           "\n"
           "A deck is text in UTF-8: [section] lines, and below them key = value lines. A # at "
           "the\n"
           "beginning of a line or after a blank begins a comment. Dash and underscore are the "
           "same\n"
           "in keys; case matters. Nothing is quoted. ${NAME} in a path is the environment "
           "variable.\n"
           "Relative paths are relative to the working directory. --section.key=value on the "
           "command\n"
           "line wins over the deck, whose own value is then not looked at. A key that is "
           "unknown,\n"
           "given twice, of the wrong type or out of range is refused, all errors at once.\n"
           "\n"
           "Start it with mpirun --bind-to none: a rank's gathers have a thread beside those that\n"
           "compute. Where hosts are on several networks, --mca btl_tcp_if_include ADDRESS/BITS "
           "names\n"
           "the one that Open MPI is to use; no other setting of it is needed.\n"
           "\n"
           "1 KiB is 1024 bytes. 1 MB/s is 1e6 bytes per second, 1 Mb/s a million bits per "
           "second.\n"
           "\n";
}

} // namespace

std::string usage_text() {
    return "usage: foregather DECK [--section.key=value ...]\n"
           "       foregather --check DECK [--ranks N] [--ranks-per-node M] "
           "[--section.key=value ...]\n"
           "       foregather --template JOB | --help [section[.key]] | --version | "
           "--self-test";
}

std::string help_text(std::string_view topic) {
    const std::string wanted = underscored(topic);
    std::string result = wanted.empty() ? overview() : "";
    std::string entries;
    for (const KeyInfo& info : known_keys()) {
        if (wanted.empty() || info.key == wanted || info.key.starts_with(wanted + ".")) {
            entries += entries.empty() ? "" : "\n";
            entries += entry_of(info);
        }
    }
    if (!entries.empty()) {
        return result + entries;
    }
    std::vector<std::string> topics = all_sections();
    const std::vector<std::string> keys = all_keys();
    topics.insert(topics.end(), keys.begin(), keys.end());
    const std::string close = nearest(wanted, topics);
    base::refuse("there is no help on " + quoted(topic) + " (" +
                 (close.empty() ? "sections: " + joined(all_sections(), ", ")
                                : "did you mean " + close + "?") +
                 ")");
}

std::string template_text(std::string_view job) {
    const std::vector<std::string> jobs = all_jobs();
    if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) {
        const std::string close = nearest(job, jobs);
        base::refuse("there is no job " + quoted(job) + " (jobs: " + joined(jobs, ", ") + ")" +
                     (close.empty() ? "" : ": did you mean " + close + "?"));
    }
    std::string result = "# Every key of the job " + std::string(job) +
                         " with its default. The keys without a default must be given.\n";
    std::string_view section;
    for (const KeyInfo& info : known_keys()) {
        const Row& row = *find_row(info.key);
        if (!info.serves(job)) {
            continue;
        }
        if (row.section() != section) {
            section = row.section();
            result += '\n';
            result += bracketed(section) + "\n";
        }
        const std::string value = info.key == "job.name" ? std::string(job) : info.default_text;
        const std::string unit = info.unit.empty() ? "" : "; unit: " + info.unit;
        result += '\n';
        result +=
            wrapped(info.help, "# ", width) +
            wrapped("Takes: " + info.type + unit + ". Default: " + default_of(info, job) + ".",
                    "# ", width) +
            std::string(row.name()) + " =" + (value.empty() ? "" : " ") + value + "\n";
    }
    return result;
}

} // namespace foregather::deck
