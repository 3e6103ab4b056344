// SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::base {
namespace {

std::string error_of(std::string_view name, const std::string& value) {
  const Status status = check({{std::string(name), value}});
  return status.ok() ? "allowed" : status.message();
}

TEST(Environment, OfThisProcessHasWhatItWasStartedWith) {
  EXPECT_TRUE(Environment::of_process().has("PATH"));
  EXPECT_FALSE(Environment::of_process().has("SPILLWAY_NOBODY_SETS_THIS"));
}

TEST(Environment, AVariableThatIsSetButEmptyCountsAsNotSet) {
  const Environment environment{{"SPILLWAY_TRIM_BYTES", ""}, {"SPILLWAY_MTU", " "}, {"OTHER", ""}};
  EXPECT_FALSE(environment.has("SPILLWAY_TRIM_BYTES"));
  EXPECT_EQ(environment.get_or("OTHER", "x"), "x");
  EXPECT_EQ(*environment.number("SPILLWAY_TRIM_BYTES"), 0);
  EXPECT_EQ(*environment.optional_number("SPILLWAY_MTU"), std::nullopt);
  EXPECT_TRUE(check(environment).ok());
}

TEST(Environment, ReadsByTheTable) {
  const Environment environment{{"SPILLWAY_MTU", " 9000 "},       {"SPILLWAY_PEER_TIMEOUT", "0.5"},
                                {"SPILLWAY_ENCRYPT", "1"},        {"SPILLWAY_DEBUG", "info"},
                                {"SPILLWAY_TIMELINE", " x.json"}, {"SPILLWAY_LISTEN", "[::1]:0"}};
  EXPECT_EQ(*environment.optional_number("SPILLWAY_MTU"), 9000);
  EXPECT_EQ(*environment.seconds("SPILLWAY_PEER_TIMEOUT"), milliseconds(500));
  EXPECT_TRUE(*environment.flag("SPILLWAY_ENCRYPT"));
  EXPECT_EQ(*environment.checked_text("SPILLWAY_DEBUG"), "INFO");
  EXPECT_EQ(environment.text("SPILLWAY_TIMELINE"), " x.json");
  EXPECT_EQ(*environment.checked_text("SPILLWAY_LISTEN"), "[::1]:0");
}

TEST(Environment, WhatIsNotSetHasTheTablesDefault) {
  const Environment empty;
  EXPECT_EQ(*empty.number("SPILLWAY_TRIM_BYTES"), 0);
  EXPECT_EQ(*empty.seconds("SPILLWAY_PEER_TIMEOUT"), milliseconds(1400));
  EXPECT_TRUE(*empty.flag("SPILLWAY_LOCAL_COPY"));
  EXPECT_EQ(*empty.checked_text("SPILLWAY_CODEC"), "exact");
  EXPECT_EQ(*empty.checked_text("SPILLWAY_COMM_ID"), "");
  EXPECT_EQ(empty.text("SPILLWAY_TIMELINE"), "");
}

TEST(Environment, LaunchersNumbersHaveTheSameSentence) {
  const Environment environment{{"RANK", "x"}, {"WORLD_SIZE", "0"}, {"LOCAL_RANK", "3"}};
  const auto message = [&](std::string_view name) {
    return environment.number_of(name, {1, 4096}).status().message();
  };
  EXPECT_EQ(message("RANK"), "RANK is 'x': it must be a whole number from 1 to 4096");
  EXPECT_EQ(message("WORLD_SIZE"), "WORLD_SIZE is '0': it must be a whole number from 1 to 4096");
  EXPECT_EQ(message("SIZE"), "SIZE is not set");
  EXPECT_EQ(*environment.number_of("LOCAL_RANK", {0, 3}), 3U);
}

TEST(Environment, AValueThatIsNotAllowedIsNamedWithWhatIs) {
  EXPECT_EQ(error_of("SPILLWAY_MTU", "70000"),
            "SPILLWAY_MTU is '70000': it must be a whole number from 576 to 65536");
  EXPECT_EQ(error_of("SPILLWAY_LINK_RATE", "10gbit"),
            "SPILLWAY_LINK_RATE is '10gbit': it must be a whole number, 1000 or more");
  EXPECT_EQ(error_of("SPILLWAY_PEER_TIMEOUT", "5s"),
            "SPILLWAY_PEER_TIMEOUT is '5s': it must be a number of seconds from 0.1 to 86400, such "
            "as 5 or 0.5");
  EXPECT_EQ(error_of("SPILLWAY_LOSS_BOUND", "1%"),
            "SPILLWAY_LOSS_BOUND is '1%': it must be a share from 0 to 1, such as 0.01");
  EXPECT_EQ(error_of("SPILLWAY_CARRIER", "sctp"),
            "SPILLWAY_CARRIER is 'sctp': it must be auto, udp or tcp");
  EXPECT_EQ(error_of("SPILLWAY_ENCRYPT", "off"), "SPILLWAY_ENCRYPT is 'off': it must be 0 or 1");
  EXPECT_EQ(error_of("SPILLWAY_COMM_ID", "here"),
            "SPILLWAY_COMM_ID is 'here': it must be a host and a port, such as 10.0.0.1:29517");
  EXPECT_EQ(error_of("SPILLWAY_SECRET", "password"),
            "SPILLWAY_SECRET is '...': it must be at least 16 bytes");
  const auto mtu = Environment{{"SPILLWAY_MTU", "1"}}.optional_number("SPILLWAY_MTU");
  EXPECT_EQ(mtu.status().message(), error_of("SPILLWAY_MTU", "1"));
}

TEST(Environment, AllThatAreWrongAreNamedAtOnce) {
  const std::string error =
      check({{"SPILLWAY_MTU", "x"}, {"SPILLWAY_THREADS", "-1"}, {"SPILLWAY_ENCRYPT", "1"}})
          .message();
  EXPECT_EQ(error, error_of("SPILLWAY_MTU", "x") + "; " + error_of("SPILLWAY_THREADS", "-1"));
}

struct Sample {
  std::string_view name;
  std::vector<std::string> allowed;
  std::vector<std::string> not_allowed;
};

TEST(Environment, KindsTakeWhatTheySay) {
  const std::vector<Sample> samples = {
      {"SPILLWAY_BITS",
       {"1", "32"},
       {"0", "33", "-3", "3x", "many", "1e1", "99999999999999999999"}},
      {"SPILLWAY_PEER_TIMEOUT",
       {"0.1", "5", "86400"},
       {"0", "-1", "soon", "nan", "inf", "0.01", "1e9"}},
      {"SPILLWAY_LEAST_CONTRIBUTORS", {"0", "1", ".5", "1e-3"}, {"-0.1", "1.1", "nan", "half"}},
      {"SPILLWAY_LINK_RATE",
       {"1000", "9223372036854775807"},
       {"64k", "999", "9223372036854775808"}},
      {"SPILLWAY_LOCAL_COPY", {"0", "1"}, {"2", "yes", "true"}},
      {"SPILLWAY_SIMD", {"scalar", "AVX2"}, {"sse9", "scalar,neon"}},
      {"SPILLWAY_DEBUG", {"NONE", "trace"}, {"LOUD", "1"}},
      {"SPILLWAY_DEBUG_SUBSYS",
       {"NET", "net,COLL", "^NET,CODEC", "ALL"},
       {"MOON", "NET,MOON", "NET,,COLL", "^"}},
      {"SPILLWAY_METRICS_LISTEN",
       {"9400", "1", "65535", "10.0.0.1:0", "[fd00::1]:9400"},
       {"0", "65536", "http", "head:9400", "10.0.0.1", ":9400"}},
      {"SPILLWAY_COMM_ID",
       {"head:29517", "10.0.0.1:1", "[fd00::1]:7"},
       {"head", ":7", "head:0", "head:65536", "fd00::1:7", "head:"}},
      {"SPILLWAY_LISTEN",
       {"10.0.0.1:0", "[fd00::1]:7077"},
       {"head:7077", "10.0.0.1", "fd00::1:7", "10.0.0.1:x", "7077"}},
      {"SPILLWAY_PEERS",
       {"10.0.0.1:7", "10.0.0.1:7,[fd00::2]:7"},
       {"10.0.0.1:7,there", "10.0.0.1:7,,10.0.0.2:7"}},
      {"SPILLWAY_SECRET", {"sixteen bytes!!!"}, {"fifteen bytes!!"}},
      {"SPILLWAY_SOCKET_FAMILY", {"AF_INET", "AF_INET6"}, {"6", "ipv4"}},
      {"SPILLWAY_SOCKET_IFNAME", {"=eth0", "^docker,br", "anything at all"}, {}},
      {"SPILLWAY_TIMELINE", {"/x/%r.json"}, {}},
  };
  for (const Sample& sample : samples) {
    for (const std::string& value : sample.allowed) {
      EXPECT_EQ(error_of(sample.name, value), "allowed") << value;
    }
    for (const std::string& value : sample.not_allowed) {
      EXPECT_NE(error_of(sample.name, value), "allowed") << sample.name << " " << value;
    }
  }
}

TEST(Environment, PrivateVariablesAreKnownAndCheckedButNeverProposed) {
  const Environment environment{{"SPILLWAY_STAGE", "/x"}, {"SPILLWAY_LAB_HOOK", "FP16"}};
  EXPECT_TRUE(unknown_variables(environment).empty());
  EXPECT_EQ(*environment.checked_text("SPILLWAY_LAB_HOOK"), "fp16");
  EXPECT_EQ(error_of("SPILLWAY_LAB_HOOK", "zip"),
            "SPILLWAY_LAB_HOOK is 'zip': it must be fp16, powersgd or flat");
  for (const Variable& variable : kPrivateVariables) {
    EXPECT_NE(nearest_variable(variable.name), variable.name);
  }
}

TEST(Environment, NamesThatNobodyReadsAreFoundWithTheNearestOne) {
  const Environment environment{{"SPILLWAY_TRIM_BYTE", "5"},
                                {"SPILLWAY_DEBUG_LEVEL", "INFO"},
                                {"SPILLWAY_MTU", "1500"},
                                {"SPILLWAY_UNSET", ""},
                                {"OTHER", "1"}};
  const std::vector<UnknownVariable> unknown = unknown_variables(environment);
  ASSERT_EQ(unknown.size(), 2U);
  EXPECT_EQ(unknown[0].name, "SPILLWAY_DEBUG_LEVEL");
  EXPECT_EQ(unknown[0].nearest, "SPILLWAY_DEBUG_FILE");
  EXPECT_EQ(unknown[1].name, "SPILLWAY_TRIM_BYTE");
  EXPECT_EQ(unknown[1].nearest, "SPILLWAY_TRIM_BYTES");
  std::vector<std::string> warnings;
  for (int times = 0; times < 2; ++times) {
    warn_of_unknown_variables(environment,
                              [&](const std::string& warning) { warnings.push_back(warning); });
  }
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_EQ(warnings[1],
            "SPILLWAY_TRIM_BYTE is set, but nothing reads it; the nearest name is "
            "SPILLWAY_TRIM_BYTES");
}

TEST(Variables, EveryRowIsWholeAndItsDefaultIsAllowed) {
  std::set<std::string_view> names;
  for (const Variable& variable : kVariables) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.name.starts_with("SPILLWAY_")) << variable.name;
    EXPECT_FALSE(variable.topic.empty()) << variable.name;
    EXPECT_FALSE(variable.readers.empty()) << variable.name;
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    EXPECT_FALSE(allowed_values(variable).empty()) << variable.name;
    EXPECT_TRUE(variable.otherwise.empty() || variable.otherwise_words.empty()) << variable.name;
    EXPECT_EQ(error_of(variable.name, std::string(variable.otherwise)), "allowed");
    EXPECT_EQ(find_variable(variable.name), &variable);
  }
  for (const Variable& variable : kPrivateVariables) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.name.starts_with("SPILLWAY_")) << variable.name;
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    EXPECT_EQ(error_of(variable.name, std::string(variable.otherwise)), "allowed");
    EXPECT_EQ(find_variable(variable.name), &variable);
  }
  EXPECT_EQ(find_variable("SPILLWAY_NOBODY_SETS_THIS"), nullptr);
}

}  // namespace
}  // namespace spillway::base
