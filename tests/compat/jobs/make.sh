# SPDX-License-Identifier: Apache-2.0
# Pattern rules, a library, a parallel build through the jobserver, a sub-make, what is up to date, a failing recipe.
mkdir -p sub && printf 'int one(void) { return 1; }\n' >one.c && printf 'int two(void) { return 2; }\n' >two.c
printf '#include <stdio.h>\nint one(void);\nint two(void);\nint main(void) { printf("%%d\\n", one() + two()); }\n' >main.c
cat >Makefile <<'M'
.RECIPEPREFIX = >
all: main sub/done
main: main.o lib.a
>$(CC) -o $@ $^
lib.a: one.o two.o
>$(AR) rcs $@ $^
%.o: %.c
>$(CC) -O2 -c -o $@ $<
sub/done:
>$(MAKE) -C sub
fail:
>false
M
printf '.RECIPEPREFIX = >\nall: $(foreach n,1 2 3 4 5 6,$(n).t)\n>touch done\n%%.t:\n>sleep 0.0$* && echo $* >$@\n' >sub/Makefile
make -sj4 && ./main && cat sub/*.t
make -q && echo up to date; touch two.c; make -n | wc -l; make -s && ./main
make fail >/dev/null 2>&1 || echo "failed with $?"
