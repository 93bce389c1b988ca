// SPDX-License-Identifier: Apache-2.0
// What the broker and the relay say to each other: the one header that both ends of their socket agree on.
//
// The relay is the only way out of a sandbox: an unprivileged process of its own uid, in the host's network namespace, that
// accepts flows on listeners inside the sandboxes' namespaces (bpf/net.h), answers their DNS queries, checks where each
// flow goes against the sandbox's rules, resolves names and dials. It parses what hostile jobs send and what strange
// servers answer, so it holds nothing else: no capability, no file, no descriptor of another sandbox's.
//
//   broker --SOCK_SEQPACKET, one struct relay_order per packet--> relay     OPEN brings listeners (SCM_RIGHTS)
//   relay  --one struct relay_report per packet-----------------> broker
//
// The end of the socket ends the relay. An order that does not fit ends it as well: then the broker is broken or hostile.
// A relay that leaves a PING unanswered for RELAY_SILENT_MS is killed, and another one is started: it may hold bytes that a
// policy has forbidden since. So its TCP sockets have SO_LINGER at 0, and the kernel sends nothing of theirs after its end.
#pragma once

#include <stdint.h>

#include "bpf/net.h"

enum {
    RELAY_SOCKET_FD = 3,  // the relay finds its socket here after exec
    RELAY_NAMES_FD = 4,   // map "names"
    RELAY_FLOWS_FD = 5,   // map "flows", read-only
    RELAY_NAME_MAX = 253, // RFC 1035, without the final dot
    RELAY_SERVERS = 4,
    RELAY_CONNECTIONS = 1024, // of one sandbox: TCP connections and UDP associations
    RELAY_UDP_IDLE_MS = 60000,
    RELAY_PULSE_MS = 400,   // between two looks whether it answers
    RELAY_SILENT_MS = 2000, // after a PING
    RELAY_START_MS = 10000, // until READY
};

enum relay_rule_kind {
    RELAY_PREFIX = 1, // address / prefix
    RELAY_NAME = 2,   // `name` exactly
    // every name below `name` ("*.example.com" is "example.com" here), not the name itself
    RELAY_SUFFIX = 3,
    // this host's own addresses, but for loopback, link-local and metadata; address ::, prefix 128
    RELAY_HOST = 4,
};

struct relay_rule {
    uint8_t kind;
    uint8_t prefix; // of the v4-mapped address
    uint8_t zero[2];
    uint32_t number; // of the rule in its policy
    uint8_t address[16];
    uint32_t ports_n; // 0: every port, both protocols
    struct net_ports ports[NET_PORTS];
    uint32_t queries_per_minute;   // of names that it allows; 0: the sandbox's own
    uint64_t bytes_max;            // both ways, of the flows that it allows; 0: no limit
    uint64_t bytes_used;           // OPEN: of that, under relays before this one
    char name[RELAY_NAME_MAX + 3]; // lower case, no final dot
};

// What was counted of a sandbox so far. A relay that is started again goes on from there, so that figures only rise, quotas
// are of the sandbox's whole life, and a synthetic address never becomes another name's.
struct relay_counted {
    uint64_t out_bytes, in_bytes;
    uint32_t queries;
    uint32_t lost;  // reports
    uint32_t names; // the last index that was given to one
    uint32_t zero;
};

enum relay_order_kind {
    RELAY_CONFIGURE = 1, // first: servers
    RELAY_OPEN = 2,      // a sandbox, its policy, its listeners
    // another policy: flows that it forbids are cut (RST), then RELAY_IN_FORCE is reported
    RELAY_POLICY = 3,
    RELAY_CLOSE = 4, // everything of the sandbox is cut and closed; answered by RELAY_CLOSED
    // nothing more may go out under this policy: the kernel counts more than the quota and its room
    RELAY_SPENT = 6,
    RELAY_PING = 5, // answered from the loop by RELAY_PONG with the same generation; slot 0
};

struct relay_order {
    uint32_t kind;
    uint32_t slot;
    uint32_t generation;
    uint32_t mode; // enum net_mode
    // CONFIGURE: name servers, v4-mapped address and port; servers_n 0: those of /etc/resolv.conf.
    uint32_t servers_n;
    struct {
        uint8_t address[16];
        uint16_t port;
        uint8_t zero[2];
    } servers[RELAY_SERVERS];
    // OPEN, POLICY
    uint64_t out_bytes_max, in_bytes_max; // 0: no limit
    uint64_t out_rate, in_rate;           // bytes per second, of the sandbox; 0: no limit
    uint32_t queries_per_minute;          // DNS queries; 0: 600
    uint32_t rules_n;
    struct relay_counted counted; // OPEN: by relays before this one
    struct relay_rule rules[];    // rules_n
};

enum relay_report_kind {
    RELAY_READY = 1,
    RELAY_DENIED = 2, // a flow or query; see reason
    // a name was resolved, to `address` and maybe others, and has a synthetic address
    RELAY_LOOKUP = 3,
    RELAY_FLOW = 4,     // a flow was opened (dialled)
    RELAY_FLOW_END = 5, // with its bytes; reason: why it was cut. Without a FLOW: the dial failed
    RELAY_CLOSED = 6,
    RELAY_SUMS = 7,      // of a sandbox, every 100 ms while they change
    RELAY_RULE_SUM = 8,  // the same of a rule with a quota: out_bytes, both ways
    RELAY_PONG = 9,      // generation: of the PING
    RELAY_IN_FORCE = 10, // one POLICY was carried out: what it forbids is cut
};

struct relay_report {
    uint32_t kind;
    uint32_t slot;
    uint32_t generation;
    uint32_t rule;                // ~0: none
    uint64_t time_ns;             // CLOCK_BOOTTIME
    uint64_t out_bytes, in_bytes; // FLOW_END: of the flow; SUMS: of the sandbox so far
    uint32_t connections;         // SUMS: open now
    uint32_t queries;             // SUMS: so far
    uint32_t names;               // SUMS: the last index; LOOKUP: the name's
    uint32_t lost;                // reports about this sandbox that found the socket full, so far
    uint32_t error; // FLOW_END without a FLOW: errno of the dial; ENOENT, EAGAIN: its name
    uint16_t port;
    uint8_t protocol;
    uint8_t reason;       // enum net_reason
    uint8_t address[16];  // that was dialled, or refused
    struct net_user user; // who asked for it, as map "flows" has it; all zero: nobody in particular
    char name[RELAY_NAME_MAX + 3]; // "": there was none
};
