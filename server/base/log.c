// SPDX-License-Identifier: Apache-2.0
// See log.h.
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/now.h"
#include "proto/utf8.h"
#include "metrics.h"

static struct {
    int fd;
    enum log_level from;
    bool json;
    uint64_t lost_reported;
} state = {.fd = STDERR_FILENO, .from = LOG_INFO};

static const char *const level_names[METRIC_VALUES_LEVEL] = {"debug", "info", "warning", "error"};

void
log_setup(int fd, enum log_level from, bool json)
{
    state.fd = fd;
    state.from = from;
    state.json = json;
    for (uint32_t i = 0; i < METRIC_VALUES_LEVEL; i++)
        metrics_name_value(METRIC_BY_LEVEL, i, level_names[i]);
}

// Characters that change how the text around them is displayed.
static bool
is_deceptive(uint32_t cp)
{
    return (cp >= 0x80 && cp < 0xa0) || cp == 0x061c || (cp >= 0x200b && cp <= 0x200f) ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x2069) || cp == 0xfeff ||
           cp > 0xffff;
}

size_t
log_escape(const char *text, char *out, size_t out_n)
{
    size_t used = 0;
    const unsigned char *s = (const unsigned char *)text;
    while (*s != '\0') {
        char piece[16];
        uint32_t cp = 0;
        size_t n = utf8_decode(s, UTF8_MAX, &cp);
        if (n == 0) {
            (void)snprintf(piece, sizeof piece, "\\\\x%02x", *s);
            n = 1;
        } else if (cp == '"' || cp == '\\') {
            (void)snprintf(piece, sizeof piece, "\\%c", (int)cp);
        } else if (cp > 0xffff) {
            (void)snprintf(piece, sizeof piece, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                           0xdc00 + (cp & 0x3ff));
        } else if (cp < 0x20 || cp == 0x7f || is_deceptive(cp)) {
            (void)snprintf(piece, sizeof piece, "\\u%04x", cp);
        } else {
            memcpy(piece, s, n);
            piece[n] = '\0';
        }
        size_t piece_n = strlen(piece);
        if (used + piece_n + 4 > out_n) {
            (void)snprintf(out + used, out_n - used, "...");
            return used + strlen(out + used);
        }
        memcpy(out + used, piece, piece_n);
        used += piece_n;
        s += n;
    }
    out[used] = '\0';
    return used;
}

static void
write_line(const char *line, size_t n)
{
    struct pollfd p = {.fd = state.fd, .events = POLLOUT};
    ssize_t w = -1;
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0)
        w = write(state.fd, line, n);
    if (w < 0 || (size_t)w != n)
        metrics_add(METRIC_LOG_LOST, 1);
}

static void
report_lost(void)
{
    uint64_t lost = metrics_sum(METRIC_LOG_LOST);
    if (lost == state.lost_reported)
        return;
    char line[96];
    int n = snprintf(line, sizeof line, "log: %" PRIu64 " lines lost so far\n", lost);
    write_line(line, (size_t)n);
    if (metrics_sum(METRIC_LOG_LOST) == lost)
        state.lost_reported = lost;
}

// Adds ,"name":"value" to a line of JSON. Returns the length.
static size_t
add_field(char *line, size_t n, const char *name, const char *value)
{
    char escaped[LOG_VALUE_MAX / 4];
    if (value == NULL || value[0] == '\0')
        return n;
    (void)log_escape(value, escaped, sizeof escaped);
    int more = snprintf(line + n, LOG_LINE_MAX - n, ",\"%s\":\"%s\"", name, escaped);
    return n + (size_t)more;
}

static size_t
put_json(char *line, const char *head, const char *text, const struct log_about *about,
         const char *code)
{
    const struct log_about none = {0};
    const struct log_about *a = about != NULL ? about : &none;
    size_t n = (size_t)snprintf(line, LOG_LINE_MAX, "{%s,\"text\":\"%s\"", head, text);
    n = add_field(line, n, "sandbox", a->sandbox);
    n = add_field(line, n, "job", a->job);
    n = add_field(line, n, "rule", a->rule);
    n = add_field(line, n, "tenant", a->tenant);
    n = add_field(line, n, "code", code);
    return n + (size_t)snprintf(line + n, LOG_LINE_MAX - n, "}\n");
}

// code: NULL if the event is not a failure.
static void
emit(enum log_level level, const char *event, const struct log_about *about, const char *code,
     const char *text)
{
    enum { FIELDS_MAX = 5 * (LOG_VALUE_MAX / 4 + 16) }; // ids and names, each at most this long
    char escaped[LOG_LINE_MAX - 256 - FIELDS_MAX];
    if (level < state.from)
        return;
    (void)log_escape(text, escaped, sizeof escaped);
    const int64_t now_ms = now_wall_ms();
    const time_t now = now_ms / 1000;
    struct tm tm;
    (void)gmtime_r(&now, &tm);
    char stamp[40];
    size_t stamp_n = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(stamp + stamp_n, sizeof stamp - stamp_n, ".%03dZ", (int)(now_ms % 1000));
    char line[LOG_LINE_MAX];
    size_t n = 0;
    if (state.json) {
        char head[192];
        (void)snprintf(head, sizeof head, "\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"",
                       stamp, level_names[level], event);
        n = put_json(line, head, escaped, about, code);
    } else {
        n = (size_t)snprintf(line, sizeof line, "%s %s %s: %s%s%s%s\n", stamp, level_names[level],
                             event, escaped, code != NULL ? " [" : "", code != NULL ? code : "",
                             code != NULL ? "]" : "");
    }
    report_lost();
    metrics_add_by(METRIC_LOG_LINES, level, 0, 1);
    write_line(line, n);
}

static __attribute__((format(printf, 4, 0))) void
put(enum log_level level, const char *event, const struct log_about *about, const char *fmt,
    va_list ap)
{
    char text[2 * LOG_VALUE_MAX + 1024];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    emit(level, event, about, NULL, text);
}

void
log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (level >= state.from)
        put(level, event, NULL, fmt, ap);
    va_end(ap);
}

void
log_event_about(enum log_level level, const char *event, const struct log_about *about,
                const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (level >= state.from)
        put(level, event, about, fmt, ap);
    va_end(ap);
}

void
log_err(enum log_level level, const char *event, const struct err *e)
{
    emit(level, event, NULL, err_code_name(e->code), e->text);
}

void
log_err_about(enum log_level level, const char *event, const struct log_about *about,
              const struct err *e)
{
    emit(level, event, about, err_code_name(e->code), e->text);
}
