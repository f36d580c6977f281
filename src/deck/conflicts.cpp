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
    const bool trains = s.job.name == "train";
    if (s.data.window == 1) {
        found.push_back(deck.where("data.window") + " = 1 can " + (trains ? "teach" : "score") +
                        " nothing: a token alone has no context; set 2 or more, or 0 for whole "
                        "documents");
    }
    refuse(!trains && s.data.window > 1 && s.data.stride >= s.data.window, "data.stride",
           "data.window",
           "a stride of at most " + std::to_string(s.data.window - 1) +
               " carries the token that the next window's first score needs");
    refuse(trains && !s.model.config.empty() && !s.model.weights.empty(), "model.config",
           "model.weights", "a weights file has a config of its own; take one of the two away");
    refuse(trains && s.train.schedule != "constant" &&
               s.train.min_learning_rate > s.train.learning_rate,
           "train.min_learning_rate", "train.learning_rate",
           "train.schedule = " + s.train.schedule + " goes down to it");
    const std::string overwritten = "it would be overwritten";
    std::vector<const char*> inputs = {"model.weights", "data.tokens"};
    if (trains) {
        inputs.insert(inputs.end(), {"model.config", "train.evaluate"});
    }
    for (const char* input : inputs) {
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
