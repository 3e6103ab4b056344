// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/attachment.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "net/system_call.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {

namespace {

// Identify this library's filter among those of an interface.
constexpr std::uint32_t kTcPriority = 7077;
constexpr std::uint32_t kTcHandle = 1;

bpf_tc_hook hook_of(std::uint32_t ifindex, Direction direction) {
  bpf_tc_hook hook = {};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = direction == Direction::kIn ? BPF_TC_INGRESS : BPF_TC_EGRESS;
  return hook;
}

bpf_tc_opts own_filter() {
  bpf_tc_opts options = {};
  options.sz = sizeof(options);
  options.handle = kTcHandle;
  options.priority = kTcPriority;
  return options;
}

// Returns 0 if there is no such program.
std::uint32_t program_id(int program_fd) {
  bpf_prog_info info = {};
  std::uint32_t bytes = sizeof(info);
  return ::bpf_obj_get_info_by_fd(program_fd, &info, &bytes) == 0 ? info.id : 0;
}

std::string_view busy_hint(int error) {
  return error == EBUSY || error == EEXIST
             ? "another program is attached there; `bpftool net` lists it"
             : "";
}

base::Status attach_error(const Interface& interface, std::string_view hook, int error,
                          const LoadLog& log) {
  const std::string attempt = fmt::format("attach to {} at {}", interface.name, hook);
  if (const std::string_view hint = busy_hint(error); !hint.empty()) {
    return net::system_error(attempt, error, hint);
  }
  return load_error(attempt, error, log);
}

}  // namespace

base::Result<Interface> find_interface(const std::string& name) {
  const std::uint32_t index = ::if_nametoindex(name.c_str());
  if (index == 0) {
    return base::Status(base::StatusCode::kUnavailable,
                        fmt::format("there is no interface {} here; `ip link` lists them", name));
  }
  return Interface{name, index};
}

base::Result<spillway_hook> attach_xdp(int program_fd, const Interface& interface) {
  const LoadLog log;
  const int index = static_cast<int>(interface.index);
  int error = ::bpf_xdp_attach(index, program_fd, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_DRV_MODE,
                               nullptr);
  if (error == 0) {
    return SPILLWAY_HOOK_XDP;
  }
  if (error == -EOPNOTSUPP) {
    error = ::bpf_xdp_attach(index, program_fd, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_SKB_MODE,
                             nullptr);
  }
  return error == 0 ? base::Result<spillway_hook>(SPILLWAY_HOOK_GENERIC)
                    : attach_error(interface, "XDP", -error, log);
}

void detach_xdp(int program_fd, std::uint32_t ifindex, spillway_hook hook) {
  const LoadLog log;
  bpf_xdp_attach_opts options = {};
  options.sz = sizeof(options);
  options.old_prog_fd = program_fd;
  const std::uint32_t mode =
      hook == SPILLWAY_HOOK_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
  (void)::bpf_xdp_detach(static_cast<int>(ifindex), mode, &options);
}

base::Status attach_tc(int program_fd, const Interface& interface, Direction direction) {
  const LoadLog log;
  bpf_tc_hook hook = hook_of(interface.index, direction);
  const int made = ::bpf_tc_hook_create(&hook);
  if (made != 0 && made != -EEXIST) {
    return attach_error(interface, "tc (clsact)", -made, log);
  }
  bpf_tc_opts options = own_filter();
  options.prog_fd = program_fd;
  if (const int error = ::bpf_tc_attach(&hook, &options); error != 0) {
    if (made == 0) {
      remove_clsact(interface.index);
    }
    return attach_error(interface, "tc", -error, log);
  }
  return {};
}

void detach_tc(int program_fd, std::uint32_t ifindex, Direction direction) {
  const LoadLog log;
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts found = own_filter();
  if (::bpf_tc_query(&hook, &found) != 0 || found.prog_id != program_id(program_fd)) {
    return;
  }
  const bpf_tc_opts options = own_filter();
  (void)::bpf_tc_detach(&hook, &options);
}

bool uses_clsact(std::uint32_t ifindex) {
  const LoadLog log;
  const auto has_chain = [ifindex](Direction direction) {
    const bpf_tc_hook hook = hook_of(ifindex, direction);
    bpf_tc_opts found = own_filter();
    return ::bpf_tc_query(&hook, &found) != -EINVAL;  // ENOENT: a chain without Spillway's filter
  };
  return has_chain(Direction::kIn) || has_chain(Direction::kOut);
}

void remove_clsact(std::uint32_t ifindex) {
  const LoadLog log;
  bpf_tc_hook hook = hook_of(ifindex, Direction::kIn);
  hook.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
  (void)::bpf_tc_hook_destroy(&hook);
}

namespace {

struct Feature {
  TagKind kind;
  std::string_view name;    // in the kernel
  std::string_view option;  // of ethtool
};
constexpr std::array<Feature, 2> kFeatures = {
    {{kCustomerTags, "rx-vlan-hw-parse", "rxvlan off"},
     {kServiceTags, "rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse off"}}};

// Kernels have about 64 features. The limit keeps a wrong number from causing a huge allocation.
constexpr std::uint32_t kMostFeatures = 4096;
constexpr std::uint32_t kFeaturesPerBlock = 32;

// An ethtool request: a fixed head and a tail of `count` elements, for which C++ has no type.
template <typename Head, typename Element>
class Request {
 public:
  Request(std::uint32_t command, std::size_t count)
      : words_((sizeof(Head) + count * sizeof(Element) + 7) / 8) {
    head().cmd = command;
  }
  Head& head() { return *reinterpret_cast<Head*>(words_.data()); }
  Element& operator[](std::size_t index) {
    return reinterpret_cast<Element*>(reinterpret_cast<std::uint8_t*>(words_.data()) +
                                      sizeof(Head))[index];
  }

 private:
  std::vector<std::uint64_t> words_;
};

// Returns false with errno set on failure.
bool ask(const std::string& interface, void* request) {
  const net::UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq asked = {};
  interface.copy(asked.ifr_name, IFNAMSIZ - 1);
  asked.ifr_data = static_cast<char*>(request);
  return any.valid() && ::ioctl(any.get(), SIOCETHTOOL, &asked) >= 0;
}

struct KernelFeature {
  TagKind kind;
  std::uint32_t bit;
};

// Finds the kFeatures that this kernel has, by their bit among its `total` features.
base::Status find_features(const std::string& interface, std::uint32_t& total,
                           std::vector<KernelFeature>& found) {
  const auto failed = [&interface] {
    return net::system_error(fmt::format("ask for the offloads of {}", interface), errno);
  };
  Request<ethtool_sset_info, std::uint32_t> sizes(ETHTOOL_GSSET_INFO, 1);
  sizes.head().sset_mask = 1ULL << ETH_SS_FEATURES;
  if (!ask(interface, &sizes.head())) {
    return failed();
  }
  total = std::min(sizes.head().sset_mask != 0 ? sizes[0] : 0, kMostFeatures);
  using Name = std::array<char, ETH_GSTRING_LEN>;
  Request<ethtool_gstrings, Name> names(ETHTOOL_GSTRINGS, total);
  names.head().string_set = ETH_SS_FEATURES;
  names.head().len = total;
  if (total != 0 && !ask(interface, &names.head())) {
    return failed();
  }
  for (std::uint32_t bit = 0; bit < total; ++bit) {
    const std::string_view name(names[bit].data(), ::strnlen(names[bit].data(), ETH_GSTRING_LEN));
    for (const Feature& feature : kFeatures) {
      if (name == feature.name) {
        found.push_back({feature.kind, bit});
      }
    }
  }
  return {};
}

std::uint32_t blocks_of(std::uint32_t features) {
  return (features + kFeaturesPerBlock - 1) / kFeaturesPerBlock;
}

base::Status set_features(const std::string& interface, std::uint8_t kinds, bool on) {
  std::uint32_t total = 0;
  std::vector<KernelFeature> found;
  if (base::Status status = find_features(interface, total, found); !status.ok()) {
    return status;
  }
  Request<ethtool_sfeatures, ethtool_set_features_block> wanted(ETHTOOL_SFEATURES,
                                                                blocks_of(total));
  wanted.head().size = blocks_of(total);
  for (const KernelFeature& feature : found) {
    if ((kinds & feature.kind) != 0) {
      const std::uint32_t bit = 1U << feature.bit % kFeaturesPerBlock;
      ethtool_set_features_block& block = wanted[feature.bit / kFeaturesPerBlock];
      block.valid |= bit;
      block.requested |= on ? bit : 0;
    }
  }
  if (!ask(interface, &wanted.head())) {
    return net::system_error(fmt::format("set the offloads of {}", interface), errno);
  }
  return {};
}

std::string options_of(std::uint8_t kinds) {
  std::string options;
  for (const Feature& feature : kFeatures) {
    if ((kinds & feature.kind) != 0) {
      options += fmt::format(" {}", feature.option);
    }
  }
  return options;
}

}  // namespace

base::Result<std::uint8_t> stripped_tags(const Interface& interface) {
  std::uint32_t total = 0;
  std::vector<KernelFeature> found;
  if (base::Status status = find_features(interface.name, total, found); !status.ok()) {
    return status;
  }
  Request<ethtool_gfeatures, ethtool_get_features_block> features(ETHTOOL_GFEATURES,
                                                                  blocks_of(total));
  features.head().size = blocks_of(total);
  if (!ask(interface.name, &features.head())) {
    return net::system_error(fmt::format("read the offloads of {}", interface.name), errno);
  }
  unsigned kinds = 0;
  for (const KernelFeature& feature : found) {
    const std::uint32_t active = features[feature.bit / kFeaturesPerBlock].active;
    const bool is_active = (active >> feature.bit % kFeaturesPerBlock & 1) != 0;
    kinds |= is_active ? static_cast<unsigned>(feature.kind) : 0U;
  }
  return static_cast<std::uint8_t>(kinds);
}

base::Status keep_tags(const Interface& interface, std::uint8_t kinds) {
  const base::Status asked = set_features(interface.name, kinds, /*on=*/false);
  const base::Result<std::uint8_t> left = stripped_tags(interface);
  if (left.ok() && (*left & kinds) == 0) {
    return {};
  }
  const auto still = static_cast<std::uint8_t>(left.ok() ? *left & kinds : kinds);
  return {base::StatusCode::kUnavailable,
          fmt::format("{0} takes VLAN tags out of frames before XDP sees them{1}; turn that off "
                      "with `ethtool -K {0}{2}` or, if its card cannot do without, use --hook tc",
                      interface.name, asked.ok() ? "" : fmt::format(" ({})", asked.message()),
                      options_of(still))};
}

void strip_tags_again(std::uint32_t ifindex, std::uint8_t kinds) {
  std::array<char, IF_NAMESIZE> name = {};
  if (kinds != 0 && ::if_indextoname(ifindex, name.data()) != nullptr) {
    (void)set_features(name.data(), kinds, /*on=*/true);
  }
}

bool is_veth(const Interface& interface) {
  ethtool_drvinfo driver = {};
  driver.cmd = ETHTOOL_GDRVINFO;
  return ask(interface.name, &driver) && std::strncmp(driver.driver, "veth", 5) == 0;
}

}  // namespace spillway::kernel
