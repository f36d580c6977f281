// SPDX-License-Identifier: Apache-2.0
// Puts checked values into the sections by means of Boost.Program_options.
// Everything that could be wrong with a value has been refused before.
#include "store.hpp"

#include <boost/program_options.hpp>

#include <foregather/base/error.hpp>

#include "sourced.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace po = boost::program_options;

namespace {

// The library keeps the result and frees it.
const po::value_semantic* semantic(Field field) {
    if (auto* const* bytes = std::get_if<base::Bytes*>(&field)) {
        base::Bytes* target = *bytes;
        return po::value<std::int64_t>()->notifier(
            [target](std::int64_t count) { *target = base::Bytes{count}; });
    }
    if (auto* const* numbers = std::get_if<std::vector<std::int64_t>*>(&field)) {
        std::vector<std::int64_t>* target = *numbers;
        return po::value<std::string>()->notifier([target](const std::string& list) {
            target->clear();
            for (const std::string& entry : entries_of(list)) {
                target->push_back(std::stoll(entry));
            }
        });
    }
    if (auto* const* words = std::get_if<std::vector<std::string>*>(&field)) {
        std::vector<std::string>* target = *words;
        return po::value<std::string>()->notifier(
            [target](const std::string& list) { *target = entries_of(list); });
    }
    if (auto* const* sourced = std::get_if<Sourced*>(&field)) {
        Sourced* target = *sourced;
        return po::value<std::string>()->notifier(
            [target](const std::string& plain) { *target = sourced_of(plain); });
    }
    return std::visit(
        [](auto* member) -> const po::value_semantic* {
            using Value = std::remove_pointer_t<decltype(member)>;
            if constexpr (std::is_same_v<Value, base::Bytes> ||
                          std::is_same_v<Value, std::vector<std::int64_t>> ||
                          std::is_same_v<Value, std::vector<std::string>> ||
                          std::is_same_v<Value, Sourced>) {
                return nullptr; // returned above
            } else {
                return po::value<Value>(member);
            }
        },
        field);
}

} // namespace

void store(const std::map<std::string, std::string>& canonical, Sections& sections) {
    po::options_description description;
    for (const Row& row : table()) {
        description.add_options()(std::string(row.key).c_str(), semantic(row.field(sections)));
    }
    po::parsed_options parsed(&description);
    for (const auto& [key, value] : canonical) {
        parsed.options.emplace_back(key, std::vector<std::string>{value});
    }
    try {
        po::variables_map values;
        po::store(parsed, values);
        po::notify(values);
    } catch (const po::error& error) {
        base::fail(std::string("storing the checked values of the deck: ") + error.what());
    }
}

} // namespace foregather::deck
