// SPDX-License-Identifier: Apache-2.0
//
// Text inside HTML and SVG, and inside their attributes.
#pragma once

#include <string>
#include <string_view>

namespace spillway::plot {

// `text` with the characters that mean something in HTML replaced. Control characters, which no
// page may hold, become spaces; line feeds and tabs stay.
std::string html_escape(std::string_view text);

}  // namespace spillway::plot
