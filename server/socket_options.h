// SPDX-License-Identifier: Apache-2.0
// Names of socket options, for people: what bpf/net_options.h refuses is reported by its name. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

// "SO_TIMESTAMPING", or "SOL_TCP option 99" where it has no name here, or "level 132, option 4".
const char *socket_option_name(uint32_t level, uint32_t option, char *out, size_t out_n);
