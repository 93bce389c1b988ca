// SPDX-License-Identifier: Apache-2.0
// A relay for tests: the real program, unprivileged, in a network namespace that represents the host, with listeners
// in another one that represents a sandbox. The test process acts as broker, spawner, kernel (it writes map "flows"),
// job and Internet. It makes a job's sockets by entering the sandbox's namespace.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bpf/net.h"
#include "server/relay/relay.h"
#include "tests/harness/wait.h"

enum {
    BOX_SLOT = 7,
    BOX_DNS_PORT = 5300,
    BOX_UID = 65534,
    BOX_WAIT_S = 20, // timeout of sockets, so that no test hangs
    BOX_RULES = 4,
};

struct box {
    pid_t relay;
    uint32_t slot;           // the sandbox of orders and flows
    int socket;              // to the relay
    int names_fd, flows_fd;  // maps
    int host_ns, sandbox_ns; // namespaces
    bool v6;                 // flow addresses of IPv6 are local in the sandbox
    bool many;               // descriptors for a thousand connections
    uint32_t generation, flow;
    struct relay_report denied; // the last report of its kind
    unsigned denials;
    struct relay_report sums; // the last report of its kind
    struct relay_report flow_end;
    unsigned ends, lookups;
};

extern struct box box;
extern unsigned box_files; // limit of descriptors, also of the relay; set it before box_setup()

_Noreturn void box_die(const char *what);
long box_map_call(enum bpf_cmd cmd, int fd, const void *key, const void *value);
void box_enter(int ns);

// Makes a new namespace with loopback up, and enters it.
int box_netns(void);
struct sockaddr_in box_v4(uint32_t address, uint16_t port);

// A socket with timeouts, so that no test hangs.
int box_socket(int family, int type);
int box_bound(int type, uint32_t address, uint16_t port);

// The packet of an order with its rules; free() it.
struct relay_order *box_order(uint32_t kind, uint32_t rules_n, size_t *n);
void box_send(const void *order, size_t n, const int *fds, size_t fds_n);

// Reads and counts one report. False: none came in time, or the relay has ended.
bool box_report(struct relay_report *r, int wait_ms);

// Reads reports until one of this kind has come.
struct relay_report box_await(uint32_t kind);

// Reads the available reports.
void box_drain(void);
void box_start_relay(uint32_t dns_port);

// The relay's status from waitpid(2); it must have ended or be about to end.
int box_wait_relay(void);

// The test is skipped if the machine does not permit it.
int box_setup(void **state);
int box_teardown(void **state);
void box_prefix(struct relay_rule *r, uint32_t address, uint8_t bits, uint16_t port);
void box_name(struct relay_rule *r, enum relay_rule_kind kind, const char *name);

// A policy that tests fill in; at first an allowlist without rules.
struct box_policy {
    uint32_t mode, rules_n, queries_per_minute;
    uint64_t out_bytes_max, in_bytes_max, out_rate, in_rate;
    struct relay_counted counted; // earlier counters, for OPEN
    struct relay_rule rules[BOX_RULES];
};

struct box_policy box_policy(uint32_t mode);

// Changes the policy, and waits until the relay has read it: it carries out an order before it handles anything else.
void box_change(const struct box_policy *p);
void box_open(const struct box_policy *p);
void box_close(void);

// Descriptors that the relay has open.
unsigned box_relay_fds(void);
