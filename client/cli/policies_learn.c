// SPDX-License-Identifier: Apache-2.0
// policy learn: a policy from the records of jobs: of those that are named, of all of a sandbox, or of the last one.
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "learn.h"
#include "policies.h"
#include "proto/validate.h"

static int
add_job(const struct policing *p, struct stockade *s, struct learning *l, const char *id)
{
    const struct stockade_job *j = NULL;
    struct stockade_error e;
    struct err why;
    int code = EXIT_OK;
    if (stockade_inspect(s, id, &j, &e) < 0)
        return cli_fail(p->c, id != NULL ? id : "", &e);
    const char *template = p->o->template_name != NULL ? p->o->template_name : j->template_name;
    if (learning_add(l, template, j->process.args, j->process.args_n, j->record.message, &why) < 0)
        code = policies_fail(p, &why);
    stockade_free(j);
    return code;
}

static int
add_sandbox(const struct policing *p, struct stockade *s, struct learning *l)
{
    char id[65], page[64] = "";
    int code = EXIT_OK;
    if (!cli_find_sandbox(s, p->c, p->o->sandbox, id, &code))
        return code;
    do {
        const struct stockade_processes *all = NULL;
        struct stockade_error e;
        if (stockade_processes(s, id, page, &all, &e) < 0)
            return cli_fail_sandbox(s, p->c, p->o->sandbox, &e);
        for (size_t i = 0; i < all->n && code == EXIT_OK; i++)
            code = add_job(p, s, l, all->items[i].id);
        (void)snprintf(page, sizeof page, "%s", all->next_page);
        stockade_free(all);
    } while (code == EXIT_OK && page[0] != '\0');
    return code;
}

static int
add_all(const struct policing *p, struct stockade *s, struct learning *l)
{
    int code = EXIT_OK;
    if (p->o->sandbox != NULL)
        code = add_sandbox(p, s, l);
    for (int i = 0; i < p->words_n && code == EXIT_OK; i++)
        if (cli_names_process(p->c, p->words[i], &code))
            code = add_job(p, s, l, p->words[i]);
    return p->words_n == 0 && p->o->sandbox == NULL ? add_job(p, s, l, NULL) : code;
}

int
policies_learn_job(const struct command *c, const struct options *o, struct stockade *s,
                   const char *process)
{
    const struct policing p = {.c = c, .o = o};
    struct learning *l = learning_new();
    struct err e;
    if (l == NULL || sodium_init() < 0 || validate_init(&e) < 0) {
        learning_free(l);
        return policies_no_memory(&p);
    }
    int code = add_job(&p, s, l, process);
    if (code == EXIT_OK && learning_save(l, o->learn_file, &e) < 0)
        code = policies_fail(&p, &e);
    learning_free(l);
    return code;
}

int
policies_learn(const struct policing *p)
{
    struct err e;
    int code = EXIT_OK;
    struct learning *l = learning_new();
    struct stockade *s = l != NULL ? cli_open(p->c, p->o, &code) : NULL;
    if (l == NULL)
        return policies_no_memory(p);
    if (s != NULL)
        code = add_all(p, s, l);
    if (s != NULL && code == EXIT_OK &&
        learning_save(l, p->o->learn_file != NULL ? p->o->learn_file : "-", &e) < 0)
        code = policies_fail(p, &e);
    stockade_close(s);
    learning_free(l);
    return code;
}
