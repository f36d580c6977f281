// SPDX-License-Identifier: Apache-2.0
// Puts checked values into the sections by means of Boost.Program_options.
// Everything that could be wrong with a value has been refused before.
#include "store.hpp"

#include <boost/program_options.hpp>

#include <foregather/base/error.hpp>

#include "table.hpp"

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
    return std::visit(
        [](auto* member) -> const po::value_semantic* {
            using Value = std::remove_pointer_t<decltype(member)>;
            if constexpr (std::is_same_v<Value, base::Bytes>) {
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
