// SPDX-License-Identifier: Apache-2.0
// See net_rig.h.
#include "tests/harness/net_rig.h"

#include "tests/harness/skip.h"

int
net_rig_command(const char *line)
{
    return system(line); // NOLINT(cert-env33-c): of the test
}

int
net_rig_attach(struct net_rig *r, bool on)
{
    struct bpf_program *p = NULL;
    int result = 0;
    if (r->attached == on)
        return 0;
    int fd = open(r->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bpf_object__for_each_program(p, r->bpf->obj)
    {
        enum bpf_attach_type type = bpf_program__expected_attach_type(p);
        int rc = on ? bpf_prog_attach(bpf_program__fd(p), fd, type, BPF_F_ALLOW_MULTI)
                    : bpf_prog_detach2(bpf_program__fd(p), fd, type);
        result = rc < 0 ? rc : result;
    }
    (void)close(fd);
    r->attached = on;
    return result;
}

static int
net_rig_load(struct net_rig *r)
{
    const struct budget_rate rate = {.per_second = 1000000, .burst = 1000000};
    r->bpf = net_bpf__open();
    if (r->bpf == NULL)
        return -errno;
    r->bpf->rodata->sandbox_level = 2;
    if (r->flows_max != 0)
        (void)bpf_map__set_max_entries(r->bpf->maps.flows, r->flows_max);
    int rc = net_bpf__load(r->bpf);
    for (uint32_t i = 0; i < EVENT_CLASSES && rc == 0; i++)
        rc = bpf_map_update_elem(bpf_map__fd(r->bpf->maps.budget_rates), &i, &rate, BPF_ANY);
    return rc;
}

static void
unload(struct net_rig *r)
{
    net_bpf__destroy(r->bpf);
    (void)rmdir(r->box);
    (void)rmdir(r->parent);
}

int
net_rig_close(void **state)
{
    struct net_rig *r = *state;
    unload(r);
    return access(r->parent, F_OK) == 0;
}

// Whether the programs must load here: from Linux 6.1 on, if root may make a map that needs CAP_BPF.
static bool
net_rig_supported(void)
{
    LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
    struct utsname u;
    char *end = NULL;
    int map = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "probe", 8, 4, 1, &opts);
    if (map < 0 || uname(&u) < 0)
        return false;
    (void)close(map);
    unsigned long major = strtoul(u.release, &end, 10);
    return major > 6 || (major == 6 && *end == '.' && strtoul(end + 1, NULL, 10) >= 1);
}

struct net_rig *
net_rig_open(struct net_rig *r)
{
    struct stat st;
    (void)libbpf_set_print(NULL);
    const char *root = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0
                           ? "/sys/fs/cgroup/unified"
                           : "/sys/fs/cgroup";
    (void)snprintf(r->parent, sizeof r->parent, "%s/stockade-net-%d", root, (int)getpid());
    (void)snprintf(r->box, sizeof r->box, "%s/box", r->parent);
    if (geteuid() != 0 || mkdir(r->parent, 0755) < 0 || mkdir(r->box, 0755) < 0)
        skip_program("needs root and cgroup v2");
    int rc = net_rig_load(r);
    if (rc == 0)
        rc = net_rig_attach(r, true);
    if (rc < 0 || stat(r->box, &st) < 0) {
        bool must = net_rig_supported();
        unload(r);
        if (!must)
            skip_program("no programs can be attached here");
        (void)fprintf(stderr, "failed: the programs do not load or attach: %s\n", strerror(-rc));
        exit(1);
    }
    r->id = st.st_ino;
    return r;
}

int
net_rig_put(const struct net_rig *r, const struct bpf_sandbox *b)
{
    int fd = bpf_map__fd(r->bpf->maps.sandboxes);
    return b == NULL ? bpf_map_delete_elem(fd, &r->id)
                     : bpf_map_update_elem(fd, &r->id, b, BPF_ANY);
}

bool
net_rig_enter(const struct net_rig *r)
{
    char procs[200];
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", r->box);
    int fd = open(procs, O_WRONLY | O_CLOEXEC);
    bool fine = write(fd, "0", 1) == 1;
    (void)close(fd);
    return fine;
}

int
net_rig_namespace(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    return net_rig_command("ip link set lo up && "
                           "ip -6 route add local fd53:746f:636b::/64 dev lo") == 0
               ? 0
               : -EIO;
}

int
net_rig_listener(int type, int protocol, uint16_t port)
{
    const int off = 0;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
    (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
        (type == SOCK_STREAM && listen(fd, 1024) < 0))
        return -1;
    return fd;
}

int
net_rig_own(const struct net_rig *r, const char *address, bool host)
{
    uint8_t key[16];
    const struct net_own_address value = {.host = host};
    (void)inet_pton(AF_INET6, address, key);
    return bpf_map_update_elem(bpf_map__fd(r->bpf->maps.own), key, &value, BPF_ANY);
}

int
net_rig_allow(const struct net_rig *r, uint32_t rule_set, const char *address, uint16_t first,
              uint16_t last)
{
    struct net_rule_key key = {.prefixlen = NET_BITS_SET + 128, .rule_set = rule_set};
    struct net_rule rule = {.n = 1, .ports = {{.first = first, .last = last, .special = 128}}};
    (void)inet_pton(AF_INET6, address, key.address);
    return bpf_map_update_elem(bpf_map__fd(r->bpf->maps.rules), &key, &rule, BPF_ANY);
}
