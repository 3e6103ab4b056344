// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/host_checks.h"

#include <cstdlib>
#include <string>

#include "base/environment.h"
#include "tools/doctor/host/gpus.h"
#include "tools/doctor/host/host_files.h"
#include "tools/doctor/host/interfaces.h"
#include "tools/doctor/host/privileges.h"
#include "tools/doctor/host/sockets.h"
#include "tools/doctor/host/system.h"

namespace spillway::doctor {
namespace {

// PATH, and the folders where distributions keep tools for root.
std::string tool_folders() {
  const char* path = std::getenv("PATH");
  return std::string(path != nullptr ? path : "") + ":/usr/sbin:/sbin:/usr/bin:/bin";
}

Findings check_software(const HostFiles& files, CapabilitySet capabilities) {
  Findings findings = {check_kernel(files)};
  append(findings, check_capabilities(capabilities));
  append(findings, {check_user_namespaces(files), check_bpffs(files), check_btf(files),
                    check_iproute2(tool_folders())});
  return findings;
}

Findings check_sockets(const HostFiles& files, CapabilitySet capabilities,
                       const net::Offloads& wanted) {
  Findings findings =
      check_socket_limits(files, wanted_socket_buffer(), has_net_admin(capabilities));
  append(findings, check_offloads(wanted, net::available_offloads(wanted)));
  const LoopbackTrial ipv4 = try_loopback(false);
  append(findings, {check_loopback_marks(ipv4, false),
                    check_loopback_marks(try_loopback(true), true), check_receive_stamps(ipv4)});
  return findings;
}

}  // namespace

Findings check_this_host(const net::Offloads& wanted) {
  const HostFiles files;
  const CapabilitySet capabilities = effective_capabilities(files);
  Findings findings = check_software(files, capabilities);
  append(findings, check_interfaces(up_interfaces()));
  append(findings, check_sockets(files, capabilities, wanted));
  append(findings, {check_clock_source(files), check_clock(measure_clock())});
  append(findings, check_gpus(look_at_gpus(base::Environment::of_process())));
  return findings;
}

}  // namespace spillway::doctor
