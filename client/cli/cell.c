// SPDX-License-Identifier: Apache-2.0
// See cell.h.
#include "cell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/plural.h"
#include "bill.h"
#include "json.h"
#include "simulations.h"
#include "text.h"

enum {
    FORM_BYTES_MAX = 16 * 1024 * 1024,
    PATH_BYTES = 1200,
    LINE_BYTES = 1024,
    KITTY_CHUNK = 4096
};

// ---- pictures

static bool
is_picture(const char *mime)
{
    return strcmp(mime, "image/png") == 0 || strcmp(mime, "image/jpeg") == 0 ||
           strcmp(mime, "image/svg+xml") == 0 || strcmp(mime, "application/pdf") == 0;
}

static char *
base64(const uint8_t *p, size_t n, size_t *out_n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    char *out = malloc((n + 2) / 3 * 4 + 1), *to = out;
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        *to++ = digits[v >> 18];
        *to++ = digits[v >> 12 & 63];
        *to++ = digits[i + 1 < n ? v >> 6 & 63 : 64];
        *to++ = digits[i + 2 < n ? v & 63 : 64];
    }
    *to = '\0';
    *out_n = (size_t)(to - out);
    return out;
}

// kitty's graphics protocol takes PNG in pieces; iTerm2's takes any picture in one.
static void
show_inline(const struct cell *c)
{
    size_t n = 0;
    char *text = base64((const uint8_t *)c->picture.bytes, c->picture.n, &n);
    if (text == NULL)
        return;
    if (c->pictures == PICTURES_ITERM) {
        (void)printf("\033]1337;File=inline=1;size=%zu:%s\a\n", c->picture.n, text);
    } else {
        for (size_t at = 0; at < n; at += KITTY_CHUNK) {
            size_t left = n - at < KITTY_CHUNK ? n - at : KITTY_CHUNK;
            (void)printf("\033_G%sm=%d;%.*s\033\\", at == 0 ? "f=100,a=T," : "", at + left < n,
                         (int)left, text + at);
        }
        (void)printf("\n");
    }
    free(text);
}

static bool
save(const struct cell *c, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t at = 0;
    while (fd >= 0 && at < c->picture.n) {
        ssize_t n = write(fd, c->picture.bytes + at, c->picture.n - at);
        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    return fd >= 0 && close(fd) == 0 && at == c->picture.n;
}

// A new file in the folder, with the first free number.
static void
save_picture(struct cell *c)
{
    const char *ending = strcmp(c->picture_mime, "image/jpeg") == 0        ? "jpg"
                         : strcmp(c->picture_mime, "image/svg+xml") == 0   ? "svg"
                         : strcmp(c->picture_mime, "application/pdf") == 0 ? "pdf"
                                                                           : "png";
    char path[PATH_BYTES];
    for (int i = 1; i < 100000; i++) {
        (void)snprintf(path, sizeof path, "%s/picture-%d.%s", c->folder, i, ending);
        if (save(c, path)) {
            (void)printf("%s\n", path);
            return;
        }
        if (errno != EEXIST)
            break;
    }
    (void)fprintf(stderr, "stockade %s: cannot save a picture to %s: %s\n", c->command->name,
                  c->folder, strerror(errno));
    c->unsaved = true;
}

static void
show_picture(struct cell *c)
{
    bool png = strcmp(c->picture_mime, "image/png") == 0;
    bool is_inline = c->pictures == PICTURES_ITERM
                         ? png || strcmp(c->picture_mime, "image/jpeg") == 0
                         : c->pictures == PICTURES_KITTY && png;
    if (is_inline)
        show_inline(c);
    else if (c->folder != NULL)
        save_picture(c);
    else
        (void)printf("<%s, %zu %s; --pictures FOLDER saves it>\n", c->picture_mime, c->picture.n,
                     plural(c->picture.n, "byte", "bytes"));
}

// ---- results

static void
add(struct capture *to, const void *bytes, size_t n)
{
    if (to->n + n > FORM_BYTES_MAX)
        return;
    if (to->n + n > to->max) {
        size_t max = (to->n + n) * 2;
        char *grown = realloc(to->bytes, max);
        if (grown == NULL)
            return;
        to->bytes = grown;
        to->max = max;
    }
    if (n > 0)
        memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
}

static void
set(struct capture *to, const struct capture *from)
{
    to->n = 0;
    add(to, from->bytes, from->n);
}

// Programs of the sandbox must not send commands to the terminal with a result: what moves the cursor is shown as '?'.
static void
put_text(struct cell *c)
{
    if (!c->at_line_start)
        (void)printf("\n");
    bool terminal = isatty(STDOUT_FILENO) == 1;
    for (size_t i = 0; i < c->text.n; i++) {
        unsigned char b = (unsigned char)c->text.bytes[i];
        bool moves = (b < ' ' && b != '\n' && b != '\t') || b == 0x7f;
        (void)putchar(terminal && moves ? '?' : b);
    }
    (void)printf("\n");
}

// A result is complete.
static void
end_result(struct cell *c, bool main)
{
    if (c->capturing) {
        json_t *o = json_object();
        (void)json_object_set_new(o, "main", json_boolean(main));
        (void)json_object_set(o, "forms", c->forms);
        (void)json_array_append_new(c->results, o);
        json_decref(c->forms);
        c->forms = json_object();
        return;
    }
    if (c->picture.n > 0)
        show_picture(c);
    else if (c->text.n > 0)
        put_text(c);
    c->at_line_start = true;
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        sink_lost(&c->sink, errno);
}

static int
on_part(void *cookie, const struct stockade_code_part *part)
{
    struct cell *c = cookie;
    if (strcmp(part->mime_type, c->mime) != 0) {
        c->form.n = 0;
        (void)snprintf(c->mime, sizeof c->mime, "%s", part->mime_type);
    }
    add(&c->form, part->bytes, part->n);
    if (part->more)
        return 0;
    if (c->capturing && is_picture(c->mime) && strcmp(c->mime, "image/svg+xml") != 0) {
        size_t n = 0;
        char *text = base64((const uint8_t *)c->form.bytes, c->form.n, &n);
        (void)json_object_set_new(c->forms, c->mime, json_string(text != NULL ? text : ""));
        free(text);
    } else if (c->capturing) {
        (void)json_set_bytes(c->forms, c->mime, c->form.n > 0 ? c->form.bytes : "", c->form.n);
    } else if (strcmp(c->mime, "text/plain") == 0) {
        set(&c->text, &c->form);
    } else if (is_picture(c->mime) && (c->picture.n == 0 || strcmp(c->mime, "image/png") == 0)) {
        set(&c->picture, &c->form);
        memcpy(c->picture_mime, c->mime, sizeof c->mime);
    }
    c->mime[0] = '\0';
    c->form.n = 0;
    if (part->last) {
        end_result(c, part->main);
        c->text.n = c->picture.n = 0;
    }
    return c->sink.broken;
}

// ---- the other events

static int
on_begin(void *cookie, const char *context_id, const char *sandbox_id, bool fresh)
{
    struct cell *c = cookie;
    (void)fresh;
    (void)snprintf(c->context_id, sizeof c->context_id, "%s", context_id);
    (void)snprintf(c->sandbox_id, sizeof c->sandbox_id, "%s", sandbox_id);
    return 0;
}

static int
on_output(void *cookie, int stream, const void *bytes, size_t n)
{
    struct cell *c = cookie;
    if (stream != STOCKADE_STDERR && n > 0)
        c->at_line_start = ((const char *)bytes)[n - 1] == '\n';
    return sink_output(&c->sink, stream, bytes, n);
}

static int
on_error(void *cookie, const char *name, const char *value, const char *traceback)
{
    struct cell *c = cookie;
    if (c->capturing) {
        json_decref(c->error);
        c->error =
            json_pack("{s:s, s:s, s:s}", "name", name, "value", value, "traceback", traceback);
        return 0;
    }
    char line[LINE_BYTES];
    const char *text = traceback[0] != '\0' ? traceback : value;
    if (traceback[0] == '\0')
        (void)fprintf(stderr, "%s: ", name);
    while (*text != '\0') { // line by line: control characters do not reach the terminal
        size_t n = strcspn(text, "\n");
        char piece[LINE_BYTES];
        (void)snprintf(piece, sizeof piece, "%.*s", (int)(n < LINE_BYTES ? n : LINE_BYTES - 1),
                       text);
        (void)fprintf(stderr, "%s\n", text_clean(piece, line, sizeof line));
        text += n + (text[n] == '\n');
    }
    return 0;
}

// ---- all of it

int
cell_check_folder(const struct command *c, const char *folder)
{
    char why[PATH_BYTES];
    struct stat st;
    if (folder == NULL)
        return EXIT_OK;
    int sys = stat(folder, &st) < 0             ? errno
              : !S_ISDIR(st.st_mode)            ? ENOTDIR
              : access(folder, W_OK | X_OK) < 0 ? errno
                                                : 0;
    if (sys == 0)
        return EXIT_OK;
    (void)snprintf(why, sizeof why, "--pictures: %.1000s: %s", folder, strerror(sys));
    return cli_usage(c, why, "");
}

void
cell_begin(struct cell *c, const char *folder)
{
    const char *term = getenv("TERM"), *program = getenv("TERM_PROGRAM");
    c->folder = folder;
    c->capturing = c->sink.capturing = c->options->json;
    c->at_line_start = true;
    c->pictures = folder != NULL ? PICTURES_FILES : PICTURES_NONE;
    if (isatty(STDOUT_FILENO) == 1 && !c->capturing) {
        if (getenv("KITTY_WINDOW_ID") != NULL || (term != NULL && strcmp(term, "xterm-kitty") == 0))
            c->pictures = PICTURES_KITTY;
        else if (program != NULL &&
                 (strcmp(program, "iTerm.app") == 0 || strcmp(program, "WezTerm") == 0))
            c->pictures = PICTURES_ITERM;
    }
    if (c->capturing) {
        c->results = json_array();
        c->forms = json_object();
    }
}

void
cell_free(struct cell *c)
{
    sink_free(&c->sink);
    free(c->form.bytes);
    free(c->text.bytes);
    free(c->picture.bytes);
    json_decref(c->forms);
    json_decref(c->results);
    json_decref(c->error);
}

int
cell_run(struct cell *c, const struct stockade_code_options *o,
         const struct stockade_code_end **end, struct stockade_error *e)
{
    const struct stockade_code_handlers h = {.on_begin = on_begin,
                                             .on_output = on_output,
                                             .on_part = on_part,
                                             .on_error = on_error,
                                             .cookie = c};
    c->at_line_start = true;
    c->unsaved = false;
    return stockade_run_code(c->s, o, &h, end, e);
}

int
cell_judge(const struct cell *c, const struct stockade_code_end *end)
{
    static const char field[] = "timeout_ms";
    char reason[LINE_BYTES];
    (void)text_clean(end->reason, reason, sizeof reason);
    const char *at = strstr(reason, field);
    const int n = at != NULL ? (int)(at - reason) : (int)strlen(reason);
    if (reason[0] != '\0' && !c->capturing)
        (void)fprintf(stderr, "stockade %s: %.*s%s%s%s\n", c->command->name, n, reason,
                      at != NULL ? "--timeout" : "", at != NULL ? at + sizeof field - 1 : "",
                      end->lost ? "; its variables are lost" : "");
    switch (end->status) {
    case STOCKADE_CODE_OK:
        return c->unsaved ? EXIT_OURS : EXIT_OK;
    case STOCKADE_CODE_ERROR:
        return EXIT_PROBLEM;
    case STOCKADE_CODE_INTERRUPTED:
        return EXIT_SIGNAL + SIGINT;
    case STOCKADE_CODE_TIMEOUT:
        return EXIT_TIME;
    case STOCKADE_CODE_CRASHED:
    case STOCKADE_CODE_CANCELLED:
        return exit_code_of_cancelled(end->reason);
    default:
        return EXIT_OURS;
    }
}

static const char *const status_names[] = {"UNSPECIFIED", "OK",      "ERROR",    "INTERRUPTED",
                                           "CRASHED",     "TIMEOUT", "CANCELLED"};

// For the next cell.
static void
forget(struct cell *c)
{
    json_decref(c->results);
    json_decref(c->error);
    c->results = json_array();
    c->error = NULL;
    c->sink.streams[0].n = c->sink.streams[1].n = 0;
}

int
cell_put_json(struct cell *c, const struct stockade_code_end *end)
{
    const struct stockade_result used = {.bill = end->bill, .reason = ""};
    json_t *o = json_object(), *of_job = json_of_result(&used);
    bool known = end->status < sizeof status_names / sizeof status_names[0];
    (void)json_object_set_new(o, "status",
                              json_string(known ? status_names[end->status] : "UNKNOWN"));
    (void)json_object_set_new(o, "execution_count", json_integer(end->execution_count));
    (void)json_object_set_new(o, "context_id", json_string(c->context_id));
    (void)json_object_set_new(o, "sandbox_id", json_string(c->sandbox_id));
    int rc = json_set_bytes(o, "stdout", c->sink.streams[0].n > 0 ? c->sink.streams[0].bytes : "",
                            c->sink.streams[0].n);
    rc |= json_set_bytes(o, "stderr", c->sink.streams[1].n > 0 ? c->sink.streams[1].bytes : "",
                         c->sink.streams[1].n);
    (void)json_object_set(o, "results", c->results);
    (void)json_object_set(o, "error", c->error != NULL ? c->error : json_null());
    (void)json_object_set_new(o, "reason", json_string(end->reason));
    (void)json_object_set_new(o, "lost", json_boolean(end->lost));
    (void)json_object_set_new(o, "limit",
                              end->limit != NULL ? json_string(end->limit->name) : json_null());
    (void)json_object_set(o, "bill", json_object_get(of_job, "bill"));
    if (end->simulation != NULL)
        rc |= json_object_set_new(o, "simulation", simulation_json(end->simulation));
    json_decref(of_job);
    forget(c);
    if (rc != 0) {
        json_decref(o);
        o = NULL;
    }
    return json_put(o);
}

const char *
cell_language_of(const char *file)
{
    static const struct {
        const char *ending, *language;
    } rows[] = {{".py", "python"},
                {".sh", "bash"},
                {".bash", "bash"},
                {".js", "javascript"},
                {".mjs", "javascript"}};
    const char *dot = strrchr(file, '.');
    for (size_t i = 0; dot != NULL && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(dot, rows[i].ending) == 0)
            return rows[i].language;
    return NULL;
}
