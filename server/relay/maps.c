// SPDX-License-Identifier: Apache-2.0
// See maps.h.
#include "maps.h"

#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long
map_call(enum bpf_cmd cmd, int fd, const void *key, const void *value)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)fd;
    attr.key = (uintptr_t)key;
    attr.value = (uintptr_t)value;
    return syscall(SYS_bpf, cmd, &attr, sizeof attr);
}

bool
maps_flow(int fd, uint32_t slot, uint32_t generation, uint32_t number, struct net_flow *out)
{
    const struct net_flow_key key = {.slot = slot, .entry = NET_FLOW_ENTRY(number)};
    memset(out, 0, sizeof *out);
    return map_call(BPF_MAP_LOOKUP_ELEM, fd, &key, out) == 0 && out->generation == generation &&
           out->number == number;
}

bool
maps_name_set(int fd, uint32_t slot, uint32_t index, const struct net_name *name)
{
    const struct net_name_key key = {.slot = slot, .index = index};
    return map_call(BPF_MAP_UPDATE_ELEM, fd, &key, name) == 0;
}

void
maps_name_remove(int fd, uint32_t slot, uint32_t index)
{
    const struct net_name_key key = {.slot = slot, .index = index};
    (void)map_call(BPF_MAP_DELETE_ELEM, fd, &key, NULL);
}
