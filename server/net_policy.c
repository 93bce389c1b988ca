// See net_policy.h.
#include "net_policy.h"

#include <errno.h>
#include <sys/stat.h>

#include <bpf/bpf.h>

#include "bpf.h"
#include "sandbox.h"
#include "sandbox_table.h"
#include "server.h"

int
sandbox_policy_put(struct sandbox *s, struct err *e)
{
    const struct bpf *b = s->all->srv->bpf;
    struct stat st;
    if (b == NULL || b->fd[BPF_FD_SANDBOXES] < 0)
        return 0;
    // The id of a cgroup is the inode number of its directory.
    if (fstat(s->dirs.fd[SPAWN_FD_CGROUP], &st) < 0)
        return err_sys(e, errno, "look at its cgroup");
    static const struct net_counters none;
    if (b->fd[BPF_FD_NET_COUNTERS] >= 0 &&
        bpf_map_update_elem(b->fd[BPF_FD_NET_COUNTERS], &s->slot, &none, BPF_ANY) < 0)
        return err_sys(e, errno, "clear its network counters");
    const struct bpf_sandbox entry = {
        .slot = s->slot,
        .generation = s->generation,
        .mode = NET_NONE,
        .template = (uint32_t)(s->spec.template - s->all->srv->config->template),
    };
    s->cgroup_id = st.st_ino;
    if (bpf_map_update_elem(b->fd[BPF_FD_SANDBOXES], &s->cgroup_id, &entry, BPF_ANY) < 0)
        return err_sys(e, errno, "write its network policy");
    return 0;
}

void
sandbox_policy_clear(struct sandbox *s)
{
    const struct bpf *b = s->all->srv->bpf;
    if (b == NULL || b->fd[BPF_FD_SANDBOXES] < 0 || s->cgroup_id == 0)
        return;
    (void)bpf_map_delete_elem(b->fd[BPF_FD_SANDBOXES], &s->cgroup_id);
    s->cgroup_id = 0;
}
