# SPDX-License-Identifier: Apache-2.0
# Flags that every target of ours gets through the interface library `stockade_flags`; nothing is set globally but the
# C standard, PIE and the removal of -DNDEBUG. Generated code is compiled without warnings.
#
# A newer flag is probed, so an older compiler leaves it out; the presets turn every warning into an error.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(GNUInstallDirs)
include(CheckCCompilerFlag)
include(CheckPIESupported)

option(STOCKADE_WERROR "Warnings are errors" OFF)
set(STOCKADE_SANITIZE "" CACHE STRING "address,undefined or thread")
option(STOCKADE_NNG "Link nng, for websockets" ON)
option(STOCKADE_FUZZ "Instrument everything for the fuzz targets (clang)" OFF)
set(STOCKADE_FUZZ_SECONDS 20 CACHE STRING "How long `ctest -L fuzz` runs each target when STOCKADE_FUZZ is on")

# Asserts stay on in every build.
foreach(config RELEASE RELWITHDEBINFO MINSIZEREL)
    string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${config} "${CMAKE_C_FLAGS_${config}}")
endforeach()
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, RelWithDebInfo or Release" FORCE)
endif()

check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_package(PkgConfig REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(SSL REQUIRED IMPORTED_TARGET openssl)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(BPF REQUIRED IMPORTED_TARGET libbpf)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
option(STOCKADE_EXPORTER "Build stockade-exporter" ON)
if(STOCKADE_EXPORTER)
    pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
    pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
    pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
endif()
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(STOCKADE_NNG)
    find_package(nng 1.5.2 CONFIG REQUIRED)
endif()

add_library(stockade_flags INTERFACE)
add_library(stockade_sanitize INTERFACE)
add_library(stockade_sanitize_static INTERFACE)
target_include_directories(stockade_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(stockade_flags INTERFACE _GNU_SOURCE STOCKADE_VERSION="${PROJECT_VERSION}")

# What gcc 12 and clang 14 both know needs no probe (each costs a tenth of a second); the hardening is the OpenSSF list of
# options for C, and what isolate and OpenSSH use.
target_compile_options(stockade_flags INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-qual
    -Wcast-align -Wwrite-strings -Wundef -Wvla -Walloca -Wformat=2 -Wnull-dereference -Wdouble-promotion -Wswitch-enum
    -Wimplicit-fallthrough -Wdate-time -Wconversion -Wsign-conversion
    -fstack-protector-strong -fstack-clash-protection -fno-delete-null-pointer-checks -fno-strict-overflow -fno-common
    -fvisibility=hidden)
set(probed -Wformat-signedness -Wbidi-chars=any
    -ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr -fstrict-flex-arrays=3)
if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
    list(APPEND probed -Wthread-safety)
else()
    list(APPEND probed -Wtrampolines -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
    list(APPEND probed -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
    list(APPEND probed -mbranch-protection=standard)
endif()
foreach(flag IN LISTS probed)
    string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
    check_c_compiler_flag("-Werror ${flag}" ${have})
    if(${have})
        target_compile_options(stockade_flags INTERFACE ${flag})
    endif()
endforeach()
if(STOCKADE_WERROR)
    target_compile_options(stockade_flags INTERFACE -Werror)
endif()
target_link_options(stockade_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed)
# A program of ours is never a library of somebody else's.
target_link_options(stockade_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,-z,nodlopen>)

if(STOCKADE_SANITIZE)
    target_compile_options(stockade_sanitize INTERFACE
        -fsanitize=${STOCKADE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(stockade_sanitize INTERFACE -fsanitize=${STOCKADE_SANITIZE})
    # Not position-independent: the sanitizers' tables hold 150,000 addresses, which every process would relocate at its start.
    if(STOCKADE_SANITIZE MATCHES "address")
        set(CMAKE_C_LINK_OPTIONS_PIE -no-pie)
    endif()
    # AddressSanitizer cannot be linked statically, and its helpers are glibc's. Traps need no library: undefined behaviour
    # ends the process with SIGILL.
    if(STOCKADE_SANITIZE MATCHES "undefined")
        target_compile_options(stockade_sanitize_static INTERFACE -fsanitize=undefined -fsanitize-undefined-trap-on-error)
    endif()
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    # Needs optimisation, and hides bugs from the sanitizers.
    target_compile_options(stockade_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
# lld takes a third of the processor time of GNU ld for a few hundred test programs. What the package holds is linked by the
# compiler's own linker.
add_library(stockade_test_link INTERFACE)
find_program(LLD ld.lld)
if(LLD)
    check_c_compiler_flag(-fuse-ld=lld STOCKADE_LINKS_WITH_LLD)
    if(STOCKADE_LINKS_WITH_LLD)
        target_link_options(stockade_test_link INTERFACE -fuse-ld=lld)
    endif()
    if(STOCKADE_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
        target_link_options(stockade_sanitize INTERFACE -fuse-ld=lld)
    endif()
endif()
if(STOCKADE_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "STOCKADE_FUZZ needs clang: libFuzzer comes with it")
    endif()
    target_compile_options(stockade_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()
