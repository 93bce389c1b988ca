// SPDX-License-Identifier: Apache-2.0
// Names of socket options: refused options (bpf/net_options.h) are reported by name. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The name of an option, such as "SO_TIMESTAMPING"; without a name "SOL_TCP option 99" or "level 132, option 4".
const char *socket_option_name(uint32_t level, uint32_t option, char *out, size_t out_n);
