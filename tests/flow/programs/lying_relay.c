// SPDX-License-Identifier: Apache-2.0
// The relay (server/relay) after an attack: it carries everything, and its reports to the broker are false. The sandbox's queries_per_minute selects the lie, so one broker has them all; any other number: it is honest.
// The linker puts these functions before the relay's own (--wrap).
#include "server/relay/report.h"

enum lie {
    LIE_FIRST = 601,
    LESS_OUT = LIE_FIRST, // half of what jobs send over TCP
    LESS_IN,              // half of what they get
    LESS_DATAGRAMS,       // the same over UDP
    ONE_HIDDEN,           // a connection, with its bytes and its reports
    ALL_UNREPORTED,       // connections are counted, not reported
    INVENTED,             // a connection and bytes that there never were
    SILENT,               // SETTLE has no answer
    ALWAYS_WAITING,       // "there is more to take"
    NEVER_DECIDED,        // connections are "still being made", so none is reported
};

void __real_report_settled(const struct sandbox *s, const struct relay_settled *now,
                           uint32_t number);
void __wrap_report_settled(const struct sandbox *s, const struct relay_settled *now,
                           uint32_t number);
void __real_report(struct sandbox *s, enum relay_report_kind kind,
                   const struct report_about *about);
void __wrap_report(struct sandbox *s, enum relay_report_kind kind,
                   const struct report_about *about);

static enum lie
lie_of(const struct sandbox *s)
{
    return s->permit != NULL ? (enum lie)s->permit->queries_per_minute : 0;
}

void
__wrap_report_settled(const struct sandbox *s, const struct relay_settled *now, uint32_t number)
{
    struct relay_settled lie = *now;
    const enum lie which = lie_of(s);
    if (which == SILENT)
        return;
    if (which == LESS_OUT)
        lie.tcp_out /= 2;
    if (which == LESS_IN)
        lie.tcp_in /= 2;
    if (which == LESS_DATAGRAMS)
        lie.udp_out /= 2;
    if (which == ONE_HIDDEN && lie.connections > 0) {
        lie.connections--;
        lie.tcp_out = lie.tcp_in = 0;
    }
    if (which == INVENTED) {
        lie.connections++;
        lie.tcp_out += 1000;
    }
    if (which == ALWAYS_WAITING)
        lie.waiting = 1;
    if (which == NEVER_DECIDED)
        lie.undecided = lie.connections;
    __real_report_settled(s, &lie, number);
}

void
__wrap_report(struct sandbox *s, enum relay_report_kind kind, const struct report_about *about)
{
    const enum lie which = lie_of(s);
    if ((which == ONE_HIDDEN || which == ALL_UNREPORTED || which == NEVER_DECIDED) &&
        (kind == RELAY_FLOW || kind == RELAY_FLOW_END))
        return;
    __real_report(s, kind, about);
}
