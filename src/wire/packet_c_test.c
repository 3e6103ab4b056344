/* SPDX-License-Identifier: Apache-2.0 */
/* The packet header must compile as plain C, as it does for eBPF. */
#include "wire/packet.h"

unsigned spillway_test_data_header_size(void) {
  return sizeof(struct spillway_data_header);
}
