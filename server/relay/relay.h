// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and the relay: one header for both ends of their socket.
//
// The relay is the only way out of a sandbox: an unprivileged process of its own uid, in the host's network
// namespace, that accepts flows on listeners inside the sandboxes' namespaces (bpf/net.h), replies to their DNS
// queries, checks the destination of each flow against the sandbox's rules, resolves names and connects. It parses
// data from hostile jobs and unknown servers, so it has no other rights: no capability, no file, and no descriptor of
// a sandbox but its listeners.
//
//   broker --SOCK_SEQPACKET, one struct relay_order per packet--> relay     OPEN brings listeners (SCM_RIGHTS)
//   relay  --one struct relay_report per packet-----------------> broker
//
// The relay exits when the socket is closed. It also exits on an invalid order, because then the broker is faulty or
// hostile. A relay that does not reply to a PING for RELAY_SILENT_MS is killed, and another one is started, because
// it may hold bytes that the policy forbids by now. Therefore its TCP sockets have SO_LINGER 0, so the kernel sends
// none of their data after its end.
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
    RELAY_PULSE_MS = 400,   // interval of PINGs
    RELAY_SILENT_MS = 2000, // after a PING
    RELAY_START_MS = 10000, // until READY
    // Of a simulated sandbox: what destinations say, the connections that are reported, and their first bytes.
    RELAY_REPLIES_MAX = 16,
    RELAY_REPLY_MAX = 2048,
    RELAY_SENT_MAX = 64,
    RELAY_FIRST_MAX = 256,
};

enum relay_rule_kind {
    RELAY_PREFIX = 1, // address / prefix
    RELAY_NAME = 2,   // `name` exactly
    // every name below `name` ("*.example.com" has the name "example.com" here), but not the name itself
    RELAY_SUFFIX = 3,
    // this host's own addresses, except loopback, link-local and metadata; address ::, prefix 128
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
    uint32_t queries_per_minute;   // of the names that it allows; 0: the sandbox's limit
    uint64_t bytes_max;            // both ways, of the flows that it allows; 0: no limit
    uint64_t bytes_used;           // OPEN: part of it that was used under earlier relays
    char name[RELAY_NAME_MAX + 3]; // lower case, no final dot
};

// What a destination says in a simulated sandbox; `to.number` is its place.
struct relay_reply {
    struct relay_rule to;
    uint32_t n;
    uint32_t zero;
    uint8_t bytes[RELAY_REPLY_MAX];
};

// The counters of a sandbox so far. A new relay continues from them, so that counters never decrease, quotas apply to
// the whole life of the sandbox, and a synthetic address is never assigned to another name.
struct relay_counted {
    uint64_t out_bytes, in_bytes;
    uint32_t queries;
    uint32_t lost;  // reports
    uint32_t names; // the last index that was assigned
    uint32_t zero;
};

enum relay_order_kind {
    RELAY_CONFIGURE = 1, // first: servers
    RELAY_OPEN = 2,      // a sandbox, its policy, its listeners
    // another policy: flows that it forbids are cut (RST), then RELAY_IN_FORCE is reported
    RELAY_POLICY = 3,
    RELAY_CLOSE = 4, // cut and close everything of the sandbox; the reply is RELAY_CLOSED
    // no more bytes may leave under this policy: the kernel counted more than the quota and its margin
    RELAY_SPENT = 6,
    RELAY_PING = 5, // the loop replies with RELAY_PONG and the same generation; slot 0
    // take what waits at the listeners, then report RELAY_SETTLED with the same number
    RELAY_SETTLE = 7,
};

struct relay_order {
    uint32_t kind;
    uint32_t slot;
    uint32_t generation;
    uint32_t mode; // enum net_mode
    // CONFIGURE: name servers, v4-mapped address and port; servers_n 0: those of /etc/resolv.conf.
    uint32_t servers_n;
    uint32_t number; // SETTLE
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
    struct relay_counted counted; // OPEN: by earlier relays
    // OPEN: 1: nothing may leave; connections that the policy allows get an answer or are reset, and are reported. It stays so.
    uint32_t simulated;
    uint32_t replies_n;        // OPEN of a simulated one: struct relay_reply, behind the rules
    struct relay_rule rules[]; // rules_n
};

enum relay_report_kind {
    RELAY_READY = 1,
    RELAY_DENIED = 2, // a flow or query; see reason
    // a name was resolved to `address` and possibly others, and has a synthetic address
    RELAY_LOOKUP = 3,
    RELAY_FLOW = 4, // the relay connected to a destination
    // with its bytes; reason: why it was cut. Without a FLOW: the connection failed
    RELAY_FLOW_END = 5,
    RELAY_CLOSED = 6,
    RELAY_SUMS = 7,      // of a sandbox, every 100 ms while its counters change
    RELAY_RULE_SUM = 8,  // the same of a rule with a quota: out_bytes counts both directions
    RELAY_PONG = 9,      // generation: of the PING
    RELAY_IN_FORCE = 10, // one POLICY was carried out: flows that it forbids are cut
    // a struct relay_sent: what one connection, association or query of a simulated sandbox would have sent. All come before
    // CLOSED
    RELAY_SENT = 11,
    RELAY_SETTLED = 12, // one SETTLE was carried out: see settled
};

// What this relay has carried for a sandbox so far, without DNS: one witness of the job's traffic, beside the kernel
// (server/network/witness.h). All of it only increases but `left`, `unsent`, `undecided` and `waiting`. What the job sent over
// TCP is out + left: exact, also for connections that were cut.
struct relay_settled {
    uint64_t tcp_out, tcp_in; // payload that was passed on
    uint64_t tcp_left;        // of jobs: received, and not passed on, yet or ever
    uint64_t tcp_unsent;      // for jobs: of tcp_in, not acknowledged, yet or ever
    uint64_t udp_out, udp_in; // datagrams
    uint64_t udp_dropped;     // of jobs: not passed on
    // datagrams and connections that the kernel dropped because a listener's queue was full
    uint32_t udp_lost, tcp_lost;
    uint32_t connections; // TCP connections that were accepted
    uint32_t undecided;   // of those, neither connected, refused nor failed yet
    uint32_t waiting;     // 1: connections or datagrams wait at the listeners
    uint32_t zero;
};

// How DNS queries ended: with an address or without one, refused by the policy, or failed.
enum relay_answer {
    RELAY_ANSWER_FOUND,
    RELAY_ANSWER_NONE,
    RELAY_ANSWER_REFUSED,
    RELAY_ANSWER_FAILED,
    RELAY_ANSWERS,
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
    uint32_t lost;  // reports about this sandbox so far that did not fit into the socket
    uint32_t error; // FLOW_END without a FLOW: errno of the connection; ENOENT, EAGAIN: of its name
    uint32_t answers[RELAY_ANSWERS]; // SUMS: under this relay so far, by enum relay_answer
    // SUMS: connections, associations and queries that were simulated, also those beyond RELAY_SENT_MAX
    uint32_t sent;
    uint32_t pid; // READY: the relay's
    uint16_t port;
    uint8_t protocol;
    uint8_t reason;               // enum net_reason
    uint8_t address[16];          // of the destination, connected or refused
    uint32_t first;               // DENIED, FLOW, FLOW_END: 1: the first one about a TCP connection
    uint32_t number;              // SETTLED: of the SETTLE
    struct relay_settled settled; // SETTLED
    struct net_user user;         // the requesting process, from map "flows"; all zero: unknown
    char name[RELAY_NAME_MAX + 3]; // "": none
};

// SENT. in_bytes and out_bytes of the report: as of FLOW_END. Its port is NET_DNS_PORT for a query.
struct relay_sent {
    struct relay_report report; // must be first
    uint32_t n;
    uint32_t zero;
    uint8_t first[RELAY_FIRST_MAX];
};
