# SPDX-License-Identifier: Apache-2.0
# A project with a shared library and a test: configured, built, tested, installed and packed, by make and, if it is there, ninja.
cat >CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.20)
project(demo C)
find_package(Threads REQUIRED)
add_library(twice SHARED twice.c)
add_executable(demo demo.c)
target_link_libraries(demo twice Threads::Threads)
enable_testing()
add_test(NAME prints COMMAND demo 21)
set_tests_properties(prints PROPERTIES PASS_REGULAR_EXPRESSION 42)
install(TARGETS demo twice)
set(CPACK_GENERATOR TGZ)
include(CPack)
C
echo 'int twice(int n) { return 2 * n; }' >twice.c
printf '#include <stdio.h>\n#include <stdlib.h>\nint twice(int);\nint main(int c, char **v) { printf("%%d\\n", twice(c > 1 ? atoi(v[1]) : 1)); }\n' >demo.c
for generator in 'Unix Makefiles' $(command -v ninja >/dev/null && echo Ninja); do
    b="build-${generator%% *}"
    cmake -G "$generator" -B "$b" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PWD/out-$b" . >log 2>&1 || cat log
    cmake --build "$b" --parallel 4 >log 2>&1 || cat log
    (cd "$b" && ctest 2>&1 | grep 'tests passed' && cpack >/dev/null && tar -tf ./*.tar.gz | sed 's/^[^/]*//' | sort)
    cmake --install "$b" >log && LD_LIBRARY_PATH="out-$b/lib" "out-$b/bin/demo" 4 && find "out-$b" -type f | sort
done
