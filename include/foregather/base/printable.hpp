// SPDX-License-Identifier: Apache-2.0
// What of a text from elsewhere may stand in a message or a file.
// It cuts and replaces; what the text means is its reader's affair.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foregather::base {

// Safe in a message of one line: control characters and broken UTF-8 as '?', cut after `most`
// bytes.
std::string printable(std::string_view text, std::size_t most = 80);

// Well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

} // namespace foregather::base
