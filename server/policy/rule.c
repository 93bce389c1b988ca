// SPDX-License-Identifier: Apache-2.0
// See rule.h.
#include "rule.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/prefix.h"
#include "bpf/net_ranges.h"

enum { V4_BITS = 96, WHOLE = 128, LABEL_MAX = 63, TEXT_MAX = 64 };

static const char host_word[] = "host";

static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};
static const uint8_t v4_mapped_zero[16] = {[10] = 0xff, [11] = 0xff};

// Reads a prefix length: decimal, without leading zeros. -1: invalid.
static int
read_prefix(const char *text, int most)
{
    int n = 0;
    size_t len = strlen(text);
    if (len == 0 || len > 3 || (text[0] == '0' && len > 1))
        return -1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return -1;
        n = n * 10 + (*p - '0');
    }
    return n <= most ? n : -1;
}

static bool
has_bits_beyond(const uint8_t address[16], unsigned prefix)
{
    uint8_t cut[16] = {0};
    memcpy(cut, address, prefix / 8);
    if (prefix % 8 != 0)
        cut[prefix / 8] = (uint8_t)(address[prefix / 8] & (0xff00U >> prefix % 8));
    return memcmp(cut, address, sizeof cut) != 0;
}

bool
net_rule_cidr(const char *text, struct relay_rule *r, const char **what)
{
    static const uint8_t unspecified[16];
    char host[TEXT_MAX];
    const char *slash = strchr(text, '/');
    if (strcmp(text, host_word) == 0) {
        *what = "";
        r->kind = RELAY_HOST;
        r->prefix = WHOLE;
        return true;
    }
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
    *what = "must be an address, such as 192.0.2.0/24 or 2001:db8::1, or the word host";
    if (n >= sizeof host)
        return false;
    memcpy(host, text, n);
    host[n] = '\0';
    uint8_t address[16];
    memcpy(address, v4_mapped, sizeof v4_mapped);
    bool v4 = inet_pton(AF_INET, host, address + sizeof v4_mapped) == 1;
    if (!v4 && inet_pton(AF_INET6, host, address) != 1)
        return false;
    int most = v4 ? 32 : 128;
    int prefix = slash != NULL ? read_prefix(slash + 1, most) : most;
    *what = "a valid prefix length must follow the '/'";
    if (prefix < 0)
        return false;
    prefix += v4 ? V4_BITS : 0;
    *what = "bits beyond the prefix are set";
    if (has_bits_beyond(address, (unsigned)prefix))
        return false;
    *what = "the unspecified address cannot be a destination";
    if (prefix == WHOLE && memcmp(address, unspecified, sizeof address) == 0)
        return false; // it stands for "host" in the kernel's table
    *what = "";
    r->kind = RELAY_PREFIX;
    r->prefix = (uint8_t)prefix;
    memcpy(r->address, address, sizeof r->address);
    return true;
}

// A label of letters, digits, '-' and '_' that does not begin or end with '-'.
static bool
is_label(const char *p, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    if (n == 0 || n > LABEL_MAX || p[0] == '-' || p[n - 1] == '-')
        return false;
    return strspn(p, allowed) >= n;
}

// The error in a name, whose part after the star starts at `from`, with a suggestion.
static const char *
domain_fault(const char *from)
{
    size_t n = strlen(from);
    for (size_t i = 0; i < n; i++)
        if ((from[i] & 0x80) != 0)
            return "a name must be in ASCII, such as xn--bcher-kva.example";
    if (strchr(from, '*') != NULL)
        return "a star must be the whole first label, as in *.example.com";
    if (n > 1 && from[n - 1] == '.' && from[n - 2] != '.')
        return "a name must not end with a dot";
    if (n > RELAY_NAME_MAX)
        return "a name has at most 253 characters";
    for (size_t label = 0; *from != '\0'; from += label + (from[label] == '.')) {
        label = strcspn(from, ".");
        if (label > LABEL_MAX)
            return "a label of a name has at most 63 characters";
    }
    return "must be a name, such as example.com or *.example.com";
}

bool
net_rule_domain(const char *text, struct relay_rule *r, const char **what)
{
    bool below = strncmp(text, "*.", 2) == 0;
    const char *from = below ? text + 2 : text;
    size_t n = strlen(from);
    if (n == 0 || n > RELAY_NAME_MAX) {
        *what = domain_fault(from);
        return false;
    }
    char name[RELAY_NAME_MAX + 3] = "";
    for (size_t i = 0; i < n; i++)
        name[i] = (char)(from[i] >= 'A' && from[i] <= 'Z' ? from[i] + ('a' - 'A') : from[i]);
    const char *last = NULL;
    for (const char *p = name;;) {
        size_t label = strcspn(p, ".");
        if (!is_label(p, label)) {
            *what = domain_fault(from);
            return false;
        }
        last = p;
        if (p[label] == '\0')
            break;
        p += label + 1;
    }
    // No top-level domain consists of digits only (RFC 3696, section 2), so an address cannot be mistaken for a name.
    *what = "an address belongs in cidr";
    if (last[strspn(last, "0123456789")] == '\0')
        return false;
    *what = "";
    r->kind = below ? RELAY_SUFFIX : RELAY_NAME;
    memcpy(r->name, name, sizeof r->name);
    return true;
}

bool
net_rule_add_ports(struct relay_rule *r, uint16_t first, uint16_t last, uint8_t protocol)
{
    if (r->ports_n == NET_PORTS)
        return false;
    r->ports[r->ports_n++] =
        (struct net_ports){.first = first, .last = last, .protocol = protocol, .rule = r->number};
    return true;
}

void
net_rule_address(const uint8_t address[16], uint16_t port, char *out, size_t n)
{
    char text[INET6_ADDRSTRLEN] = "";
    bool v4 = net_is_v4(address);
    (void)inet_ntop(v4 ? AF_INET : AF_INET6, address + (v4 ? sizeof v4_mapped : 0), text,
                    sizeof text);
    if (port != 0)
        (void)snprintf(out, n, v4 ? "%s:%u" : "[%s]:%u", text, port);
    else
        (void)snprintf(out, n, "%s", text);
}

void
net_rule_text(const struct relay_rule *r, char *out, size_t n)
{
    char host[INET6_ADDRSTRLEN];
    if (r->kind == RELAY_HOST) {
        (void)snprintf(out, n, "%s", host_word);
        return;
    }
    if (r->kind != RELAY_PREFIX) {
        (void)snprintf(out, n, "%s%s", r->kind == RELAY_SUFFIX ? "*." : "", r->name);
        return;
    }
    bool v4 = net_is_v4(r->address);
    net_rule_address(r->address, 0, host, sizeof host);
    (void)snprintf(out, n, "%s/%d", host, v4 ? r->prefix - V4_BITS : r->prefix);
}

static bool
is_of_addresses(const struct relay_rule *r)
{
    return r->kind == RELAY_PREFIX || r->kind == RELAY_HOST;
}

bool
net_rule_is_special(const struct relay_rule *r)
{
    return r->kind == RELAY_HOST ||
           (r->kind == RELAY_PREFIX && net_range_bits(r->address, 0, r->prefix) != 0);
}

uint8_t
net_rule_names(const struct relay_rule *r)
{
    bool whole = is_of_addresses(r) && r->prefix == WHOLE;
    return whole || net_rule_is_special(r) ? r->prefix : 0;
}

static bool
prefix_within(const struct relay_rule *inner, const struct relay_rule *outer)
{
    if (net_is_v4(inner->address) != net_is_v4(outer->address))
        return false;
    return inner->prefix >= outer->prefix &&
           prefix_equal(inner->address, outer->address, outer->prefix);
}

static bool
same_prefix(const struct relay_rule *a, const struct relay_rule *b)
{
    return a->prefix == b->prefix && memcmp(a->address, b->address, sizeof a->address) == 0;
}

static bool
name_below(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t s = strlen(suffix);
    return n > s + 1 && name[n - s - 1] == '.' && strcmp(name + n - s, suffix) == 0;
}

// A rule allows metadata addresses only if it lies within their range, not if it contains it.
static bool
lends(const struct relay_rule *outer, const struct relay_rule *inner)
{
    return outer->prefix >= net_range_bits(inner->address, NET_METADATA, inner->prefix) &&
           (net_rule_is_special(outer) || !net_rule_is_special(inner));
}

bool
net_rule_within(const struct relay_rule *inner, const struct relay_rule *outer)
{
    bool same_name = strcmp(inner->name, outer->name) == 0;
    if (inner->kind == RELAY_HOST || outer->kind == RELAY_HOST)
        return inner->kind == outer->kind;
    if (inner->kind == RELAY_PREFIX || outer->kind == RELAY_PREFIX)
        return inner->kind == outer->kind && prefix_within(inner, outer) && lends(outer, inner);
    if (outer->kind == RELAY_NAME)
        return inner->kind == RELAY_NAME && same_name;
    return (inner->kind == RELAY_SUFFIX && same_name) || name_below(inner->name, outer->name);
}

static bool
covered(const struct net_rule *v, const struct net_ports *p)
{
    for (uint32_t i = 0; i < v->n; i++) {
        const struct net_ports *q = &v->ports[i];
        if (q->first <= p->first && q->last >= p->last && q->special >= p->special &&
            (q->protocol == 0 || q->protocol == p->protocol))
            return true;
    }
    return false;
}

// Adds ports to an entry unless it has them; false: the entry is full.
static bool
add_ports(struct net_rule *v, const struct net_ports *p)
{
    if (covered(v, p))
        return true;
    if (v->n == NET_PORTS)
        return false;
    v->ports[v->n++] = *p;
    return true;
}

static int
too_many_ports(const struct relay_rule *r, uint32_t number, struct err *e)
{
    char field[64];
    char text[TEXT_MAX];
    net_rule_text(r, text, sizeof text);
    (void)snprintf(field, sizeof field, "network.outbound[%u].ports", number);
    return err_field(e, field, "more than %d port ranges for %s", NET_PORTS, text);
}

// Adds what a rule allows.
static int
add_rule(struct net_rule *v, const struct relay_rule *r, struct err *e)
{
    const struct net_ports every = {.first = 1, .last = UINT16_MAX};
    uint32_t n = r->ports_n != 0 ? r->ports_n : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct net_ports p = r->ports_n != 0 ? r->ports[i] : every;
        p.special = net_rule_names(r);
        p.rule = r->number;
        if (!add_ports(v, &p))
            return too_many_ports(r, r->number, e);
    }
    return 0;
}

// Adds what the enclosing prefix of `r` allows, which includes its own enclosing prefixes.
static int
add_around(struct net_rule *v, const struct net_rule *around, const struct relay_rule *r,
           struct err *e)
{
    for (uint32_t i = 0; i < around->n; i++)
        if (!add_ports(v, &around->ports[i]))
            return too_many_ports(r, around->ports[i].rule, e);
    return 0;
}

// Sorts a prefix after those that contain it, IPv4 after IPv6, and rules of one prefix in their order.
static int
by_prefix(const void *left, const void *right)
{
    const struct relay_rule *a = *(const struct relay_rule *const *)left;
    const struct relay_rule *b = *(const struct relay_rule *const *)right;
    int r = (int)net_is_v4(a->address) - (int)net_is_v4(b->address);
    r = r != 0 ? r : memcmp(a->address, b->address, sizeof a->address);
    r = r != 0 ? r : (int)a->prefix - (int)b->prefix;
    return r != 0 ? r : (a > b) - (a < b);
}

static uint32_t
sort_prefixes(const struct relay_rule *rules, uint32_t rules_n, const struct relay_rule **out)
{
    uint32_t n = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < rules_n; i++) {
        if (!is_of_addresses(&rules[i]))
            continue;
        out[n] = &rules[i];
        sorted = sorted && (n == 0 || by_prefix(&out[n - 1], &out[n]) < 0);
        n++;
    }
    if (!sorted)
        qsort(out, n, sizeof(const struct relay_rule *), by_prefix);
    return n;
}

static void
put_key(struct net_rule_key *key, const uint8_t address[16], unsigned prefix)
{
    *key = (struct net_rule_key){.prefixlen = NET_BITS_SET + prefix};
    memcpy(key->address, address, sizeof key->address);
}

// An IPv6 prefix that contains ::ffff:0:0/96 must not allow IPv4 addresses: the first `from` entries are IPv6, and
// the next one is that of all IPv4, if it exists.
static uint32_t
part_v4(struct net_rule_key *keys, struct net_rule *values, uint32_t from, uint32_t n)
{
    struct net_rule_key v4;
    bool around = false;
    put_key(&v4, v4_mapped_zero, V4_BITS);
    for (uint32_t i = 0; i < from && !around; i++)
        around = keys[i].prefixlen < v4.prefixlen &&
                 prefix_equal(keys[i].address, v4_mapped_zero, keys[i].prefixlen - NET_BITS_SET);
    if (!around || (from < n && memcmp(&keys[from], &v4, sizeof v4) == 0))
        return n;
    values[n] = (struct net_rule){0};
    keys[n] = v4;
    return n + 1;
}

int
net_rule_compile(const struct relay_rule *rules, uint32_t rules_n, struct net_rule_key *keys,
                 struct net_rule *values, uint32_t *n, struct err *e)
{
    const struct relay_rule *sorted[NET_RULES];
    const struct relay_rule *first[NET_RULES]; // of each entry
    uint32_t around[NET_RULES];                // the enclosing entry + 1; 0: none
    assert(rules_n <= NET_RULES);
    uint32_t sorted_n = sort_prefixes(rules, rules_n, sorted);
    uint32_t done = 0;
    uint32_t v6 = 0;
    int err = 0;
    for (uint32_t i = 0; i < sorted_n && err == 0; done++) {
        const struct relay_rule *r = sorted[i];
        uint32_t in = done;
        while (in > 0 && !prefix_within(r, first[in - 1]))
            in = around[in - 1];
        first[done] = r;
        around[done] = in;
        put_key(&keys[done], r->address, r->prefix);
        values[done] = (struct net_rule){0};
        for (; i < sorted_n && err == 0 && same_prefix(sorted[i], r); i++)
            err = add_rule(&values[done], sorted[i], e);
        if (err == 0 && in > 0)
            err = add_around(&values[done], &values[in - 1], r, e);
        v6 += !net_is_v4(r->address);
    }
    if (err == 0)
        *n = part_v4(keys, values, v6, done);
    return err;
}
