/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's types and helper functions. The helpers use the types, so the order matters.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_KERNEL_HELPERS_H
#define SPILLWAY_DATAPLANE_BPF_KERNEL_HELPERS_H

/* clang-format off */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
/* clang-format on */

#endif /* SPILLWAY_DATAPLANE_BPF_KERNEL_HELPERS_H */
