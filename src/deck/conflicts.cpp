// SPDX-License-Identifier: Apache-2.0
// Refuses values that cannot go together, or can do nothing, whatever the machine, model and build.
// What needs any of those is refused by the job.
#include "conflicts.hpp"

#include <algorithm>

#include "text.hpp"

namespace foregather::deck {

namespace {

const Setting& setting(const Deck& deck, std::string_view key) {
    return *std::find_if(deck.settings().begin(), deck.settings().end(),
                         [&](const Setting& s) { return s.key == key; });
}

std::string clash(const Deck& deck, std::string_view key, std::string_view other,
                  const std::string& reason) {
    const Setting& second = setting(deck, other);
    return deck.where(key) + " = " + printable(setting(deck, key).value) + " does not go with " +
           second.key + " = " + printable(second.value) + " (" +
           (second.where.empty() ? second.origin : second.where) + "): " + reason;
}

} // namespace

std::vector<std::string> conflicts(const Deck& deck) {
    const Sections& s = deck.sections();
    const std::string& transport = s.comm.transport;
    std::vector<std::string> found;
    const auto refuse = [&](bool wrong, std::string_view key, std::string_view other,
                            const std::string& reason) {
        if (wrong) {
            found.push_back(clash(deck, key, other, reason));
        }
    };
    refuse(transport == "nccl" && s.device.kind == "host", "comm.transport", "device.kind",
           "nccl moves the memory of GPUs; the host takes mpi or shared");
    refuse((transport == "mpi" || transport == "shared") && s.device.kind == "cuda",
           "comm.transport", "device.kind", "cuda takes nccl");
    refuse(s.comm.link_rate_bytes_per_s > 0 && transport == "shared", "comm.link_rate",
           "comm.transport", "shared reads weights where they lie, so there is nothing to slow");
    refuse(s.output.require == "observed" && !s.output.timeline, "output.require",
           "output.timeline", "without a timeline nothing is observed");
    if (s.data.window == 1) {
        found.push_back(deck.where("data.window") +
                        " = 1 can score nothing: a token alone has no context; set 2 or more, or 0 "
                        "for whole documents");
    }
    refuse(s.data.window > 1 && s.data.stride >= s.data.window, "data.stride", "data.window",
           "a stride of at most " + std::to_string(s.data.window - 1) +
               " carries the token that the next window's first score needs");
    const std::string overwritten = "it would be overwritten";
    for (const char* input : {"model.weights", "data.tokens"}) {
        for (const char* output : {"output.file", "output.log"}) {
            const std::string& path = setting(deck, output).expanded;
            refuse(!path.empty() && path == setting(deck, input).expanded, output, input,
                   overwritten);
        }
    }
    refuse(!s.output.log.empty() && s.output.log == s.output.file, "output.log", "output.file",
           overwritten);
    return found;
}

} // namespace foregather::deck
