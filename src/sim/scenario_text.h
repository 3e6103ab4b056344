// SPDX-License-Identifier: Apache-2.0
//
// The form of a scenario file: one directive per line, `noun key=value ...`; `#` begins a comment.
// The first word behind the noun may stand without a key: `seed 7`, `topology leaf-spine rate=...`;
// its key is then kBareKey. What nouns and keys there are is scenario.h's business.
//
// Overrides have the shape `noun.key=value` and hold for every directive of that noun;
// `noun.2.key=value` for the second one only. `noun=value` is the bare word's. A noun that does not
// occur is added.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::sim {

inline constexpr std::string_view kBareKey = "";

struct TextSetting {
  std::string key;
  std::string value;
};

struct Directive {
  std::string noun;
  std::string place;  // for messages: "line 3", "--set job.bytes=1"
  std::vector<TextSetting> settings;
};

base::Result<std::vector<Directive>> parse_directives(std::string_view text);

base::Status apply_override(std::string_view text, std::vector<Directive>& directives);

}  // namespace spillway::sim
