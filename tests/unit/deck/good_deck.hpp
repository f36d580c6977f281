// SPDX-License-Identifier: Apache-2.0
// A deck that is accepted, and what parsing another one says, for all tests of this room.
// It decides no expectation.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/deck/deck.hpp>

namespace foregather::deck::test {

// The required keys alone; ten lines.
inline const std::string good_deck = "[job]\n"
                                     "name = score\n"
                                     "[model]\n"
                                     "weights = model.h5\n"
                                     "[data]\n"
                                     "tokens = tokens.h5\n"
                                     "[output]\n"
                                     "file = results.h5\n"
                                     "[batch]\n"
                                     "tokens = 512\n";

// The required keys of a training run alone; eleven lines.
inline const std::string training_deck = "[job]\n"
                                         "name = train\n"
                                         "[model]\n"
                                         "weights = model.h5\n"
                                         "[data]\n"
                                         "tokens = tokens.h5\n"
                                         "[train]\n"
                                         "steps = 10\n"
                                         "learning_rate = 1e-3\n"
                                         "[output]\n"
                                         "file = results.h5\n";

inline Deck parsed(const std::string& text, const std::vector<std::string>& overrides = {},
                   const Variables& variables = {}) {
    return Deck::parse(text, "score.deck", overrides, variables);
}

// What the refusal says; "" if the deck is accepted. Fails the test if the status is not `refused`.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {},
                           const Variables& variables = {}) {
    try {
        parsed(text, overrides, variables);
    } catch (const base::Error& error) {
        return error.status() == base::Status::refused ? error.what() : "wrong status";
    }
    return "";
}

// The setting of a key in a parsed deck; an empty one if there is none.
inline Setting setting_of(const Deck& deck, const std::string& key) {
    for (const Setting& setting : deck.settings()) {
        if (setting.key == key) {
            return setting;
        }
    }
    return {};
}

// "[fsdp]\nforward_prefetch = 2\n", to be put after good_deck.
inline std::string section_and_line(const std::string& key, const std::string& value) {
    const std::size_t dot = key.find('.');
    std::string lines(1, '[');
    return lines += key.substr(0, dot) + "]\n" + key.substr(dot + 1) + " = " + value + "\n";
}

} // namespace foregather::deck::test
