// SPDX-License-Identifier: Apache-2.0
// The environment, the figures, the reports and the injected failures of all test doubles. It
// decides how they are told and counted, and not what is wrong. Tests only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace foregather::emulation {

std::string setting(const char* name); // "" if unset
std::int64_t setting(const char* name, std::int64_t otherwise);

// Rank of this process as the launcher told it, else 0.
int world_rank();

// A number from "<n>@<rank>" in the environment if the rank is ours (or none is named), else none.
std::optional<std::int64_t> ranked_setting(const char* name);

void count(const std::string& name, std::int64_t by = 1);
void peak(const std::string& name, std::int64_t value);

// Counts a call of the function and tells whether FOREGATHER_EMULATION_FAIL wants it to fail.
bool fails_now(const std::string& function);

// One line on stderr, "emulation: <kind>: <text>", counted as reports and reports.<kind>; ends the
// process with status 97 if FOREGATHER_EMULATION_STRICT is set.
void report(const std::string& kind, const std::string& text);

// A line on stderr that the doubles do not model something.
void not_modelled(const std::string& what);

void restart_ledger();

} // namespace foregather::emulation
