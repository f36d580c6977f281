// SPDX-License-Identifier: Apache-2.0
// Replaces ${NAME} in path values by environment variables.
// Only variables_of reads this process's environment.
#include "expand.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "reader.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

// The NAME of the "${NAME}" at the head of `text`; nullopt if it is none.
std::optional<std::string> name_at(std::string_view text) {
    const std::size_t end = text.find('}');
    if (!text.starts_with("${") || end == std::string_view::npos || end == 2) {
        return std::nullopt;
    }
    const std::string_view name = text.substr(2, end - 2);
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const bool well_formed =
        is_letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
            return is_letter(c) || (c >= '0' && c <= '9');
        });
    return well_formed ? std::optional<std::string>(name) : std::nullopt;
}

void find_variables(std::string_view text, Variables& variables) {
    for (std::size_t at = text.find("${"); at != std::string_view::npos;
         at = text.find("${", at + 2)) {
        const std::optional<std::string> name = name_at(text.substr(at));
        const char* value = name ? std::getenv(name->c_str()) : nullptr;
        if (value != nullptr) {
            variables[*name] = value;
        }
    }
}

} // namespace

Variables variables_of(std::string_view text, const std::vector<std::string>& overrides) {
    Variables variables;
    find_variables(text, variables);
    for (const std::string& word : overrides) {
        find_variables(word, variables);
    }
    return variables;
}

Expansion expanded(const std::string& value, const Variables& variables) {
    Expansion result;
    std::string_view rest = value;
    while (!rest.empty()) {
        const std::size_t dollar = std::min(rest.find('$'), rest.size());
        result.text += rest.substr(0, dollar);
        rest.remove_prefix(dollar);
        if (rest.empty()) {
            break;
        }
        const std::optional<std::string> name = name_at(rest);
        if (!name) {
            result.refusal = "holds a $ that does not begin ${NAME}: " + quoted(value);
            return result;
        }
        const auto variable = variables.find(*name);
        if (variable == variables.end()) {
            result.refusal = "needs the environment variable " + printable(*name) +
                             ", which is not set: " + quoted(value);
            return result;
        }
        if (variable->second.find('$') != std::string::npos) {
            result.refusal = "needs the environment variable " + *name + ", whose value holds a $";
            return result;
        }
        result.text += variable->second;
        rest.remove_prefix(name->size() + 3);
    }
    const std::string refusal = trimmed(result.text).size() == result.text.size()
                                    ? plain_refusal(result.text)
                                    : "begins or ends with a blank";
    if (!refusal.empty()) {
        result.refusal = "after its variables are replaced " + refusal;
    }
    return result;
}

} // namespace foregather::deck
