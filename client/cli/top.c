// SPDX-License-Identifier: Apache-2.0
// top: the resource use of sandboxes, live. Two samples give a rate; each table is drawn over the previous one.
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"
#include "tty.h"
#include "units.h"

enum { PAGES_MAX = 100, CELL = 40, NAME_CELL = 80, INTERVAL_MS = 1000, FIRST_MS = 250 };

enum column { SANDBOX, NAME, CPU, MEMORY, PIDS, IO, OUT, IN, DENIED, ALERTS, COLUMNS };
_Static_assert((int)COLUMNS <= (int)TABLE_COLUMNS_MAX, "a table has them all");

// Columns that are omitted first on a narrow terminal; the others always stay.
static const enum column expendable[] = {IN, OUT, IO, PIDS, DENIED, MEMORY, ALERTS};
enum { NAME_MIN = 8 }; // names are truncated to this before a column is omitted

// One sample of all sandboxes.
struct reading {
    const struct stockade_usages *page[PAGES_MAX];
    size_t pages;
    size_t n;
};

// A sandbox with its use since the previous sample.
struct row {
    const struct stockade_usage *now;
    double cpu_percent, io_bytes, out_bytes, in_bytes; // per second
};

struct top {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *sandbox; // its id; NULL: all
    struct reading before, now;
    bool live; // on a terminal
};

static volatile sig_atomic_t stopped;

static void
on_stop(int number)
{
    (void)number;
    stopped = 1;
}

static void
on_resize(int number)
{
    (void)number; // poll() returns, and the table is drawn again
}

static void
reading_free(struct reading *r)
{
    for (size_t i = 0; i < r->pages; i++)
        stockade_free(r->page[i]);
    *r = (struct reading){0};
}

static int
read_all(struct top *t, struct reading *out, struct stockade_error *e)
{
    char page[33] = "";
    do {
        const struct stockade_usages *all = NULL;
        int rc = stockade_usage(t->s, t->sandbox, t->o->tenant, page, &all, e);
        if (rc < 0)
            return rc;
        out->page[out->pages++] = all;
        out->n += all->n;
        (void)snprintf(page, sizeof page, "%s", all->next_page);
    } while (page[0] != '\0' && out->pages < PAGES_MAX);
    return 0;
}

static const struct stockade_usage *
find(const struct reading *r, const char *id)
{
    for (size_t p = 0; p < r->pages; p++)
        for (size_t i = 0; i < r->page[p]->n; i++)
            if (strcmp(r->page[p]->items[i].sandbox_id, id) == 0)
                return &r->page[p]->items[i];
    return NULL;
}

static double
rate(uint64_t now, uint64_t before, double seconds)
{
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void
fill_row(struct row *r, const struct stockade_usage *now, const struct stockade_usage *before)
{
    *r = (struct row){.now = now};
    if (before == NULL)
        return;
    double seconds = (double)(now->time_ms - before->time_ms) / 1000;
    r->cpu_percent = rate(now->cpu_ns, before->cpu_ns, seconds) / 1e7;
    r->io_bytes = rate(now->io_read_bytes + now->io_write_bytes,
                       before->io_read_bytes + before->io_write_bytes, seconds);
    r->out_bytes = rate(now->network.out_bytes, before->network.out_bytes, seconds);
    r->in_bytes = rate(now->network.in_bytes, before->network.in_bytes, seconds);
}

static int
busiest_first(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->cpu_percent > y->cpu_percent || x->cpu_percent < y->cpu_percent)
        return x->cpu_percent > y->cpu_percent ? -1 : 1;
    return (x->now->memory_bytes < y->now->memory_bytes) -
           (x->now->memory_bytes > y->now->memory_bytes);
}

// The rows of both samples. Free them with free(). NULL: out of memory.
static struct row *
rows_of(const struct top *t)
{
    struct row *rows = calloc(t->now.n + 1, sizeof *rows);
    size_t n = 0;
    for (size_t p = 0; rows != NULL && p < t->now.pages; p++)
        for (size_t i = 0; i < t->now.page[p]->n; i++) {
            const struct stockade_usage *u = &t->now.page[p]->items[i];
            fill_row(&rows[n++], u, find(&t->before, u->sandbox_id));
        }
    if (rows != NULL)
        qsort(rows, n, sizeof *rows, busiest_first);
    return rows;
}

// ---- as text

static char *
show_rate(double bytes, char *out, size_t n)
{
    if (bytes < 1)
        (void)snprintf(out, n, "0");
    else
        units_show_bytes((uint64_t)bytes, out, n);
    return out;
}

struct cells {
    char text[COLUMNS][NAME_CELL];
};

static void
fill_cells(struct cells *c, const struct row *r, bool tenants)
{
    const struct stockade_usage *u = r->now;
    const size_t n = NAME_CELL;
    (void)cli_short_id(u->sandbox_id, c->text[SANDBOX]);
    (void)snprintf(c->text[NAME], n, "%s%s", u->paused ? "(paused) " : "",
                   tenants ? u->tenant : u->name);
    if (c->text[NAME][0] == '\0')
        (void)snprintf(c->text[NAME], n, "-");
    (void)snprintf(c->text[CPU], n, "%.1f", r->cpu_percent);
    (void)units_show_bytes(u->memory_bytes, c->text[MEMORY], n);
    (void)snprintf(c->text[PIDS], n, "%u/%u", u->pids, u->pids_limit);
    (void)show_rate(r->io_bytes, c->text[IO], n);
    (void)show_rate(r->out_bytes, c->text[OUT], n);
    (void)show_rate(r->in_bytes, c->text[IN], n);
    (void)snprintf(c->text[DENIED], n, "%" PRIu64, u->denials);
    (void)snprintf(c->text[ALERTS], n, "%" PRIu64, u->alerts);
}

// Selects the columns that fit into the terminal's width, and the length of names.
struct layout {
    bool shown[COLUMNS];
    size_t name;
};

static size_t
width_of(const struct layout *l, const size_t width[COLUMNS])
{
    size_t sum = 0;
    for (size_t i = 0; i < COLUMNS; i++)
        if (l->shown[i])
            sum += (sum > 0 ? 2 : 0) + (i == NAME ? l->name : width[i]);
    return sum;
}

static struct layout
lay_out(const struct cells *all, size_t n, size_t columns)
{
    size_t width[COLUMNS] = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < COLUMNS; c++)
            if (text_width(all[i].text[c]) > width[c])
                width[c] = text_width(all[i].text[c]);
    struct layout l = {.name = width[NAME]};
    for (size_t i = 0; i < COLUMNS; i++)
        l.shown[i] = true;
    size_t least = width[NAME] < NAME_MIN ? width[NAME] : NAME_MIN;
    for (size_t i = 0; i <= sizeof expendable / sizeof expendable[0]; i++) {
        l.name = width[NAME];
        size_t all_of_it = width_of(&l, width);
        size_t over = all_of_it > columns ? all_of_it - columns : 0;
        l.name = width[NAME] > least + over ? width[NAME] - over : least;
        if (width_of(&l, width) <= columns)
            break;
        if (i < sizeof expendable / sizeof expendable[0])
            l.shown[expendable[i]] = false;
    }
    return l;
}

static void
add_cells(struct table *table, const struct cells *c, const struct layout *l)
{
    const char *row[COLUMNS];
    char name[NAME_CELL];
    size_t n = 0;
    (void)text_clean(c->text[NAME], name, l->name + 1 < sizeof name ? l->name + 1 : sizeof name);
    for (size_t i = 0; i < COLUMNS; i++)
        if (l->shown[i])
            row[n++] = i == NAME ? name : c->text[i];
    (void)table_row(table, row);
}

static struct table *
table_of(const struct cells *head, const struct layout *l)
{
    const char *row[COLUMNS];
    size_t n = 0;
    for (size_t i = 0; i < COLUMNS; i++)
        if (l->shown[i])
            row[n++] = head->text[i];
    struct table *table = table_new(row, n);
    for (size_t i = 0, at = 0; table != NULL && i < COLUMNS; i++)
        if (l->shown[i] && at++ > 0 && i != NAME)
            table_align_right(table, at - 1);
    return table;
}

// Prints at most `most` sandboxes, within this number of columns.
static void
print_rows(const struct top *t, const struct row *rows, size_t most, size_t columns, FILE *to)
{
    static const char *const names[COLUMNS] = {"SANDBOX", "NAME",  "CPU%", "MEMORY", "PIDS",
                                               "I/O/s",   "OUT/s", "IN/s", "DENIED", "ALERTS"};
    bool tenants = t->o->tenant != NULL;
    size_t n = t->now.n < most ? t->now.n : most;
    struct cells *all = calloc(n + 1, sizeof *all); // the first line is the head
    if (all == NULL)
        return;
    for (size_t i = 0; i < COLUMNS; i++)
        (void)snprintf(all[0].text[i], NAME_CELL, "%s", i == NAME && tenants ? "TENANT" : names[i]);
    for (size_t i = 0; i < n; i++)
        fill_cells(&all[i + 1], &rows[i], tenants);
    const struct layout l = lay_out(all, n + 1, columns);
    struct table *table = table_of(&all[0], &l);
    for (size_t i = 0; table != NULL && i < n; i++)
        add_cells(table, &all[i + 1], &l);
    if (table != NULL)
        table_print(table, to);
    table_free(table);
    free(all);
    if (t->now.n > n)
        (void)fprintf(to, "and %zu more, less busy\n", t->now.n - n);
}

static void
print_sums(const struct top *t, const struct row *rows, FILE *to)
{
    double cpu = 0;
    uint64_t memory = 0, denials = 0, alerts = 0;
    uint32_t jobs = 0;
    char text[CELL];
    for (size_t i = 0; i < t->now.n; i++) {
        cpu += rows[i].cpu_percent;
        memory += rows[i].now->memory_bytes;
        denials += rows[i].now->denials;
        alerts += rows[i].now->alerts;
        jobs += rows[i].now->jobs;
    }
    (void)fprintf(
        to, "%zu %s, %u %s, CPU %.1f%%, memory %s, denied %" PRIu64 ", alerts %" PRIu64 "\n\n",
        t->now.n, plural(t->now.n, "sandbox", "sandboxes"), jobs, plural(jobs, "job", "jobs"), cpu,
        units_show_bytes(memory, text, sizeof text), denials, alerts);
}

// Draws over the previous table, truncated to the terminal's size. \033[K clears the rest of a line, \033[J the lines
// below. The head of the table, after the totals and a blank line, is bold.
static void
draw(const char *text, uint32_t rows, uint32_t columns)
{
    enum { HEAD = 2 };
    (void)fputs("\033[H", stdout);
    for (uint32_t i = 0; i + 1 < rows && *text != '\0'; i++) {
        size_t n = strcspn(text, "\n");
        (void)printf("%s%.*s%s\033[K\r\n", i == HEAD ? "\033[1m" : "",
                     (int)(n < columns ? n : columns), text, i == HEAD ? "\033[0m" : "");
        text += n + (text[n] == '\n');
    }
    (void)fputs("\033[J", stdout);
}

static int
show_text(const struct top *t, const struct row *rows)
{
    enum { AROUND = 5 }; // lines without a sandbox: totals, blank, head, "and more", the cursor's
    uint32_t height = UINT32_MAX, columns = UINT32_MAX;
    char *auto_free text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (to == NULL)
        return EXIT_PROBLEM;
    if (t->live)
        tty_size(&height, &columns);
    print_sums(t, rows, to);
    print_rows(t, rows, height > AROUND ? height - AROUND : 1, columns, to);
    (void)fclose(to);
    if (t->live)
        draw(text, height, columns);
    else
        (void)fputs(text, stdout);
    return cli_flush(t->c);
}

static int
show_json(const struct top *t, const struct row *rows)
{
    json_t *o = json_object(), *all = json_array();
    for (size_t i = 0; i < t->now.n; i++) {
        json_t *u = json_of_usage(rows[i].now);
        (void)json_object_set_new(u, "cpu_percent", json_real(rows[i].cpu_percent));
        (void)json_object_set_new(u, "io_bytes_per_second", json_real(rows[i].io_bytes));
        (void)json_object_set_new(u, "out_bytes_per_second", json_real(rows[i].out_bytes));
        (void)json_object_set_new(u, "in_bytes_per_second", json_real(rows[i].in_bytes));
        (void)json_array_append_new(all, u);
    }
    (void)json_object_set_new(o, "sandboxes", all);
    return json_put(o);
}

// ---- the clock and the keys

// Waits; false: q, ^C or a signal ended it. Returns true early if the window size changed.
static bool
pause_for(const struct top *t, uint64_t ms)
{
    struct pollfd keys = {.fd = t->live ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    int n = poll(&keys, 1, (int)(ms < 3600000 ? ms : 3600000));
    if (n > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 3))
        return false;
    return !stopped;
}

static int
next(struct top *t)
{
    struct stockade_error e;
    reading_free(&t->before);
    t->before = t->now;
    t->now = (struct reading){0};
    return read_all(t, &t->now, &e) < 0 ? cli_fail(t->c, "", &e) : EXIT_OK;
}

static int
run(struct top *t)
{
    bool once = t->o->once || (!t->live && !t->o->json);
    uint64_t interval = t->o->interval_ms != 0 ? t->o->interval_ms : INTERVAL_MS;
    int code = next(t);
    // the first rates appear soon; a stream of JSON keeps its interval
    bool soon = (once && t->o->interval_ms == 0) || (t->live && interval > FIRST_MS);
    bool more = code == EXIT_OK && pause_for(t, soon ? FIRST_MS : interval);
    while (more) {
        code = next(t);
        struct row *rows = code == EXIT_OK ? rows_of(t) : NULL;
        if (rows != NULL)
            code = t->o->json ? show_json(t, rows) : show_text(t, rows);
        free(rows);
        more = code == EXIT_OK && !once && pause_for(t, interval);
    }
    return code;
}

static void
watch_signals(void)
{
    // poll() is interrupted in any case (signal(7)), and a write goes on. A second signal ends a write that hangs.
    const struct sigaction stop = {.sa_handler = on_stop,
                                   .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    const struct sigaction resize = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGHUP, &stop, NULL);
    (void)sigaction(SIGWINCH, &resize, NULL);
}

int
cli_top(const struct command *c, const struct options *o)
{
    char id[CLI_ID_SIZE];
    int code = EXIT_OK;
    struct top t = {.c = c, .o = o, .s = cli_open(c, o, &code)};
    if (t.s == NULL)
        return code;
    t.sandbox = o->sandbox != NULL ? id : NULL;
    if (o->sandbox == NULL || cli_find_sandbox_id(t.s, c, o->sandbox, id, &code)) {
        watch_signals();
        t.live = !o->once && !o->json && isatty(STDOUT_FILENO) && tty_raw();
        if (t.live)
            (void)fputs("\033[?1049h\033[?25l", stdout); // a screen of its own, no cursor
        code = run(&t);
        if (t.live)
            (void)fputs("\033[?25h\033[?1049l", stdout);
        tty_restore();
    }
    reading_free(&t.before);
    reading_free(&t.now);
    stockade_close(t.s);
    return code;
}
