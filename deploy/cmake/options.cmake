# Flags that every target of ours gets through the interface library `stockade_flags`; nothing is set globally but the
# C standard. Generated code is compiled without warnings.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(GNUInstallDirs)
include(CheckCCompilerFlag)

option(STOCKADE_WERROR "Warnings are errors" OFF)
set(STOCKADE_SANITIZE "" CACHE STRING "address,undefined or thread")
option(STOCKADE_FUZZ "Build the fuzz targets (clang)" OFF)

# Asserts stay on in every build.
foreach(config RELEASE RELWITHDEBINFO MINSIZEREL)
    string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${config} "${CMAKE_C_FLAGS_${config}}")
endforeach()

find_package(PkgConfig REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
find_package(nng 1.5.2 CONFIG REQUIRED)

add_library(stockade_flags INTERFACE)
target_include_directories(stockade_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(stockade_flags INTERFACE _GNU_SOURCE STOCKADE_VERSION="${PROJECT_VERSION}")
add_library(stockade_sanitize INTERFACE)
foreach(flag
        -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-qual
        -Wcast-align -Wwrite-strings -Wundef -Wvla -Walloca -Wformat=2 -Wformat-signedness -Wnull-dereference
        -Wdouble-promotion -Wswitch-enum -Wimplicit-fallthrough -Wdate-time -Wconversion -Wsign-conversion -Wtrampolines
        -Wbidi-chars=any -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init -Wthread-safety
        -fstack-protector-strong -fstack-clash-protection -ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr
        -fno-delete-null-pointer-checks -fno-strict-overflow -fno-common -fvisibility=hidden -fstrict-flex-arrays=3)
    string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
    check_c_compiler_flag("-Werror ${flag}" ${have})
    if(${have})
        target_compile_options(stockade_flags INTERFACE ${flag})
    endif()
endforeach()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
    target_compile_options(stockade_flags INTERFACE -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
    target_compile_options(stockade_flags INTERFACE -mbranch-protection=standard)
endif()
if(STOCKADE_WERROR)
    target_compile_options(stockade_flags INTERFACE -Werror)
endif()
target_link_options(stockade_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed)
if(STOCKADE_SANITIZE)
    target_compile_options(stockade_sanitize INTERFACE -fsanitize=${STOCKADE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(stockade_sanitize INTERFACE -fsanitize=${STOCKADE_SANITIZE})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(stockade_flags INTERFACE -D_FORTIFY_SOURCE=2)
endif()
