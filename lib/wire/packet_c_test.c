/* SPDX-License-Identifier: Apache-2.0 */
/* The headers shared with eBPF must compile as plain C. */
#include "wire/packet.h"
#include "wire/packet_check.h"

unsigned spillway_test_data_header_size(void) {
  return sizeof(struct spillway_planes_header);
}
