# SPDX-License-Identifier: Apache-2.0
# Compile, link with a library, optimise, run under threads, a failing program's signal.
cat >l.c <<'C'
int twice(int n) { return 2 * n; }
C
cat >m.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
int twice(int);
static void *run(void *p) { return (void *)(long)twice((int)(long)p); }
int main(void)
{
    pthread_t t[20];
    long sum = 0;
    for (long i = 0; i < 20; i++)
        if (pthread_create(&t[i], NULL, run, (void *)i)) abort();
    for (int i = 0; i < 20; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
    printf("%ld\n", sum);
}
C
gcc -O2 -Wall -fPIC -shared l.c -o libl.so && gcc -O2 -flto m.c -L. -ll -lpthread -Wl,-rpath,"$PWD" -o m && ./m
gcc -static m.c l.c -o s -lpthread && ./s
printf 'int main(void) { return *(volatile int *)0; }' | gcc -x c - -o crash && { ./crash || echo "$?"; }
gcc -g -fsanitize=undefined m.c l.c -o u -lpthread && ./u
file -b m | cut -d, -f1; objdump -d s | grep -c '<main>:'; ar rcs l.a libl.so && ar t l.a
