// SPDX-License-Identifier: Apache-2.0
#include "plot/html_text.h"

namespace spillway::plot {
namespace {

std::string escaped(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '\'':
      return "&#39;";
    case '"':
      return "&quot;";
    case '\n':
    case '\t':
      return {c};
    default:
      return {static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c};
  }
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string all;
  for (const char c : text) {
    all += escaped(c);
  }
  return all;
}

}  // namespace spillway::plot
