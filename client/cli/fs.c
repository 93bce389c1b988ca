// SPDX-License-Identifier: Apache-2.0
// fs: the files of a sandbox, one at a time. `cp` (copy.c) carries files and folders to and from this machine.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "cli.h"
#include "commands.h"
#include "fs_watch.h"
#include "json.h"
#include "remote.h"
#include "sink.h"
#include "text.h"

enum { ARENA_MAX = 1024 * 1024, MODE_MAX = 0777, TEXT_MAX = 4200 };

// What an action works with.
struct fs {
    struct stockade *s;
    const struct command *c;
    const struct options *o;
    const char *sandbox;
    const char *const *paths;
    int paths_n;
    uint32_t mode;
    struct arena *arena;
};

static ProtobufCBinaryData
bytes_of(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static int
call(const struct fs *f, const char *method, const ProtobufCMessage *request,
     const ProtobufCMessageDescriptor *response, ProtobufCMessage **out)
{
    struct stockade_error e = {0};
    if (remote_call(f->s, method, request, response, f->arena, out, &e) == 0)
        return EXIT_OK;
    if (strcmp(e.reason, "NOT_EMPTY") == 0) // the broker's names its field
        (void)snprintf(e.hint, sizeof e.hint, "remove what it holds, too: -r");
    return cli_fail(f->c, "", &e);
}

// ---- one line per file

static char
letter_of(Stockade__V1__FileType type)
{
    static const char letters[] = "?-dl?";
    if ((unsigned)type >= sizeof letters - 1)
        return '?';
    return letters[type];
}

static const char *
name_of_type(Stockade__V1__FileType type)
{
    static const char *const names[] = {"UNKNOWN", "FILE", "FOLDER", "LINK", "OTHER"};
    return names[(unsigned)type < sizeof names / sizeof names[0] ? type : 0];
}

static const char *
text_of(const ProtobufCBinaryData *from, char out[TEXT_MAX])
{
    char plain[TEXT_MAX];
    (void)snprintf(plain, sizeof plain, "%.*s",
                   (int)(from->len < TEXT_MAX ? from->len : TEXT_MAX - 1),
                   from->data != NULL ? (const char *)from->data : "");
    return text_clean(plain, out, TEXT_MAX);
}

static json_t *
json_of_file(const Stockade__V1__File *file)
{
    int64_t ms = file->modify_time != NULL
                     ? file->modify_time->seconds * 1000 + file->modify_time->nanos / 1000000
                     : 0;
    char mode[8];
    (void)snprintf(mode, sizeof mode, "%04o", file->mode);
    json_t *j = json_pack("{ss sI ss so ss}", "type", name_of_type(file->type), "size",
                          (json_int_t)file->size, "mode", mode, "modify_time", json_of_time(ms),
                          "version", file->version);
    (void)json_set_bytes(j, "path", file->path.data, file->path.len);
    if (file->target.len > 0)
        (void)json_set_bytes(j, "target", file->target.data, file->target.len);
    return j;
}

static void
print_file(const Stockade__V1__File *file)
{
    static const char bits[] = "rwxrwxrwx";
    char mode[] = "----------";
    char when[32] = "";
    char path[TEXT_MAX];
    char target[TEXT_MAX];
    mode[0] = letter_of(file->type);
    for (unsigned i = 0; i < 9; i++)
        if ((file->mode >> (8 - i) & 1) != 0)
            mode[1 + i] = bits[i];
    time_t t = file->modify_time != NULL ? (time_t)file->modify_time->seconds : 0;
    struct tm tm;
    if (localtime_r(&t, &tm) != NULL)
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    (void)printf("%s %12" PRIu64 " %s %s%s%s\n", mode, file->size, when, text_of(&file->path, path),
                 file->target.len > 0 ? " -> " : "", text_of(&file->target, target));
}

static int
show(const struct fs *f, const Stockade__V1__File *file)
{
    if (file == NULL)
        return EXIT_OK;
    if (f->o->json)
        return json_put(json_of_file(file));
    print_file(file);
    return EXIT_OK;
}

// ---- the actions

static int
fs_stat(const struct fs *f)
{
    Stockade__V1__FileServiceStatRequest m = STOCKADE__V1__FILE_SERVICE_STAT_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    int code = EXIT_OK;
    m.sandbox_id = f->sandbox;
    for (int i = 0; i < f->paths_n && code == EXIT_OK; i++) {
        m.path = bytes_of(f->paths[i]);
        code = call(f, REMOTE_METHOD("Stat"), &m.base,
                    &stockade__v1__file_service_stat_response__descriptor, &answer);
        if (code == EXIT_OK)
            code = show(f, ((const Stockade__V1__FileServiceStatResponse *)answer)->file);
    }
    return code;
}

static int
print_page(const struct fs *f, const Stockade__V1__FileServiceListResponse *page, json_t *all)
{
    for (size_t i = 0; i < page->n_files; i++) {
        if (all != NULL)
            (void)json_array_append_new(all, json_of_file(page->files[i]));
        else
            print_file(page->files[i]);
    }
    (void)f;
    return EXIT_OK;
}

static int
fs_ls(const struct fs *f)
{
    enum { PAGE_FILES = 1000, TOKEN_MAX = 8192 };
    Stockade__V1__FileServiceListRequest m = STOCKADE__V1__FILE_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    uint8_t token[TOKEN_MAX];
    json_t *all = f->o->json ? json_array() : NULL;
    m.sandbox_id = f->sandbox;
    m.path = bytes_of(f->paths_n > 0 ? f->paths[0] : ".");
    m.depth = f->o->recursive ? 64 : 1;
    m.page_size = PAGE_FILES;
    if (f->o->glob != NULL)
        m.glob = bytes_of(f->o->glob);
    int code = EXIT_OK;
    do {
        arena_reset(f->arena);
        code = call(f, REMOTE_METHOD("List"), &m.base,
                    &stockade__v1__file_service_list_response__descriptor, &answer);
        if (code != EXIT_OK)
            break;
        const Stockade__V1__FileServiceListResponse *page =
            (const Stockade__V1__FileServiceListResponse *)answer;
        code = print_page(f, page, all);
        m.page_token.len = page->next_page_token.len < TOKEN_MAX ? page->next_page_token.len : 0;
        if (m.page_token.len > 0)
            memcpy(token, page->next_page_token.data, m.page_token.len);
        m.page_token.data = token;
    } while (m.page_token.len > 0);
    if (all != NULL && code == EXIT_OK)
        return json_put_list(all);
    json_decref(all);
    return code;
}

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    return sink_output(cookie, STOCKADE_STDOUT, bytes, n);
}

static int
fs_cat(const struct fs *f)
{
    Stockade__V1__FileServiceReadRequest m = STOCKADE__V1__FILE_SERVICE_READ_REQUEST__INIT;
    struct sink out = {0};
    struct stockade_error e = {0};
    m.sandbox_id = f->sandbox;
    for (int i = 0; i < f->paths_n; i++) {
        m.path = bytes_of(f->paths[i]);
        int rc = remote_read(f->s, &m, &(struct remote_sink){.data = on_data, .cookie = &out}, &e);
        if (rc > 0)
            return sink_broken(&out, f->c, EXIT_PROBLEM);
        if (rc < 0)
            return cli_fail(f->c, "", &e);
    }
    return EXIT_OK;
}

static int
fs_write(const struct fs *f)
{
    Stockade__V1__FileServiceOpenWriteRequest m =
        STOCKADE__V1__FILE_SERVICE_OPEN_WRITE_REQUEST__INIT;
    Stockade__V1__WriteOptions how = STOCKADE__V1__WRITE_OPTIONS__INIT;
    int fd = STDIN_FILENO;
    struct remote_source source = {.read = remote_read_fd, .cookie = &fd, .fd = fd};
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    m.sandbox_id = f->sandbox;
    m.path = bytes_of(f->paths[0]);
    m.options = &how;
    how.mode = f->mode;
    how.parents = f->o->parents;
    how.only_if_absent = f->o->no_clobber;
    const struct remote_transfer transfer = {
        REMOTE_METHOD("OpenWrite"), &m.base,
        &stockade__v1__file_service_open_write_response__descriptor};
    int rc = remote_send(f->s, &transfer, &source, f->arena, &answer, &e);
    if (source.failed != 0)
        (void)snprintf(e.text, sizeof e.text, "read stdin: %s", strerror(source.failed));
    if (rc < 0)
        return cli_fail(f->c, "", &e);
    return f->o->json ? show(f, ((const Stockade__V1__FileServiceOpenWriteResponse *)answer)->file)
                      : EXIT_OK;
}

static int
fs_mkdir(const struct fs *f)
{
    Stockade__V1__FileServiceMakeDirRequest m = STOCKADE__V1__FILE_SERVICE_MAKE_DIR_REQUEST__INIT;
    int code = EXIT_OK;
    m.sandbox_id = f->sandbox;
    m.parents = f->o->parents;
    m.mode = f->mode;
    for (int i = 0; i < f->paths_n && code == EXIT_OK; i++) {
        m.path = bytes_of(f->paths[i]);
        code = call(f, REMOTE_METHOD("MakeDir"), &m.base,
                    &stockade__v1__file_service_make_dir_response__descriptor, NULL);
    }
    return code;
}

static int
fs_rm(const struct fs *f)
{
    Stockade__V1__FileServiceRemoveRequest m = STOCKADE__V1__FILE_SERVICE_REMOVE_REQUEST__INIT;
    int code = EXIT_OK;
    m.sandbox_id = f->sandbox;
    m.recursive = f->o->recursive;
    for (int i = 0; i < f->paths_n && code == EXIT_OK; i++) {
        m.path = bytes_of(f->paths[i]);
        code = call(f, REMOTE_METHOD("Remove"), &m.base,
                    &stockade__v1__file_service_remove_response__descriptor, NULL);
    }
    return code;
}

static int
fs_mv(const struct fs *f)
{
    Stockade__V1__FileServiceMoveRequest m = STOCKADE__V1__FILE_SERVICE_MOVE_REQUEST__INIT;
    m.sandbox_id = f->sandbox;
    m.path = bytes_of(f->paths[0]);
    m.to = bytes_of(f->paths[1]);
    m.parents = f->o->parents;
    m.only_if_absent = f->o->no_clobber;
    return call(f, REMOTE_METHOD("Move"), &m.base,
                &stockade__v1__file_service_move_response__descriptor, NULL);
}

static int
fs_cp(const struct fs *f)
{
    Stockade__V1__FileServiceCopyRequest m = STOCKADE__V1__FILE_SERVICE_COPY_REQUEST__INIT;
    m.sandbox_id = f->sandbox;
    m.path = bytes_of(f->paths[0]);
    m.to = bytes_of(f->paths[1]);
    m.parents = f->o->parents;
    return call(f, REMOTE_METHOD("Copy"), &m.base,
                &stockade__v1__file_service_copy_response__descriptor, NULL);
}

static int
fs_chmod(const struct fs *f)
{
    Stockade__V1__FileServiceSetModeRequest m = STOCKADE__V1__FILE_SERVICE_SET_MODE_REQUEST__INIT;
    int code = EXIT_OK;
    if (f->mode == 0)
        return cli_usage(f->c, "chmod needs --mode", "use --mode 755, for example");
    m.sandbox_id = f->sandbox;
    m.mode = f->mode;
    for (int i = 0; i < f->paths_n && code == EXIT_OK; i++) {
        m.path = bytes_of(f->paths[i]);
        code = call(f, REMOTE_METHOD("SetMode"), &m.base,
                    &stockade__v1__file_service_set_mode_response__descriptor, NULL);
    }
    return code;
}

static int
fs_watch(const struct fs *f)
{
    return fs_watch_run(f->s, f->c, f->o, f->sandbox, f->paths_n > 0 ? f->paths[0] : ".");
}

// ---- the command

static const struct action {
    const char *name;
    int paths_min, paths_max; // max < 0: any
    int (*run)(const struct fs *f);
} actions[] = {
    {"ls", 0, 1, fs_ls},       {"stat", 1, -1, fs_stat},   {"cat", 1, -1, fs_cat},
    {"write", 1, 1, fs_write}, {"mkdir", 1, -1, fs_mkdir}, {"rm", 1, -1, fs_rm},
    {"mv", 2, 2, fs_mv},       {"cp", 2, 2, fs_cp},        {"chmod", 1, -1, fs_chmod},
    {"watch", 0, 1, fs_watch},
};

static const struct action *
find(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static bool
read_mode(const char *text, uint32_t *out)
{
    char *end = NULL;
    *out = 0;
    if (text == NULL)
        return true;
    unsigned long mode = strtoul(text, &end, 8);
    *out = (uint32_t)mode;
    return end != text && *end == '\0' && mode > 0 && mode <= MODE_MAX;
}

static int
check_paths(const struct command *c, const struct action *a, int n)
{
    char why[128];
    if (n >= a->paths_min && (a->paths_max < 0 || n <= a->paths_max))
        return EXIT_OK;
    (void)snprintf(why, sizeof why, "%s takes %d %s%s, not %d", a->name, a->paths_min,
                   plural((uint64_t)a->paths_min, "path", "paths"),
                   a->paths_max < 0 ? " or more" : "", n);
    return cli_usage(c, why, "use 'stockade help fs'");
}

int
cli_fs(const struct command *c, const struct options *o)
{
    const struct action *action = find(o->args[0]);
    struct fs f = {.c = c, .o = o, .paths = o->args + 2, .paths_n = o->args_n - 2};
    char why[128];
    char target[CLI_TARGET_SIZE];
    int code = EXIT_OK;
    if (action == NULL) {
        (void)snprintf(why, sizeof why, "there is no action '%.40s'", o->args[0]);
        return cli_usage(c, why,
                         "use one of ls, stat, cat, write, mkdir, rm, mv, cp, chmod, watch");
    }
    if (!read_mode(o->mode, &f.mode))
        return cli_usage(c, "--mode is not an octal number from 1 to 777", "use 644, for example");
    if ((code = check_paths(c, action, f.paths_n)) != EXIT_OK)
        return code;
    f.s = cli_open(c, o, &code);
    if (f.s == NULL)
        return code;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    f.arena = a;
    f.sandbox = target;
    if (a == NULL)
        code = EXIT_PROBLEM;
    else if (cli_find_target(f.s, c, o->args[1], target, &code))
        code = action->run(&f);
    stockade_close(f.s);
    int flushed = cli_flush(c);
    return code != EXIT_OK ? code : flushed;
}
