# SPDX-License-Identifier: Apache-2.0
# The C library of a static program that is executed once per sandbox.
#
# glibc's start of a static program runs the CPUID instruction some forty times and relocates itself: half a millisecond
# where a hypervisor traps CPUID, for a guest that then needs none of it. musl's start is a handful of system calls. So such a program
# is linked with musl where Debian's musl-dev is found; where it is not, with glibc, which works the same but for the time.
# Its headers are musl's, the kernel's, protobuf-c's and Zstandard's, through a folder of links: none of glibc's can slip in.
set(STOCKADE_MUSL AUTO CACHE STRING "Link the guest with musl: AUTO (where it is installed), ON (or fail), OFF")
set_property(CACHE STOCKADE_MUSL PROPERTY STRINGS AUTO ON OFF)

set(STOCKADE_MUSL_FOUND FALSE)
if(STOCKADE_MUSL)
    find_path(MUSL_INCLUDE_DIR bits/syscall.h PATHS /usr/include/${CMAKE_SYSTEM_PROCESSOR}-linux-musl NO_DEFAULT_PATH)
    find_path(MUSL_LIBRARY_DIR libc.a PATHS /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-musl NO_DEFAULT_PATH)
    find_path(KERNEL_INCLUDE_DIR linux/seccomp.h)
    find_path(KERNEL_ASM_INCLUDE_DIR asm/unistd.h)
    find_path(PROTOBUF_C_INCLUDE_DIR protobuf-c/protobuf-c.h)
    find_path(ZSTD_INCLUDE_DIR zstd.h)
    set(libgcc)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libgcc.a OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(MUSL_INCLUDE_DIR AND MUSL_LIBRARY_DIR AND KERNEL_INCLUDE_DIR AND KERNEL_ASM_INCLUDE_DIR AND PROTOBUF_C_INCLUDE_DIR AND ZSTD_INCLUDE_DIR
       AND EXISTS "${libgcc}")
        set(STOCKADE_MUSL_FOUND TRUE)
    elseif(STOCKADE_MUSL STREQUAL "AUTO")
        message(WARNING "musl was not found (Debian: musl-dev): the guest is linked with glibc, and each sandbox takes about "
            "half a millisecond of processor time longer to start")
    else()
        message(FATAL_ERROR "STOCKADE_MUSL is ON, and musl was not found (Debian: musl-dev)")
    endif()
endif()

# Makes `target`, an executable, static: with musl, or with the system's C library.
function(stockade_static target)
    set_property(TARGET ${target} PROPERTY POSITION_INDEPENDENT_CODE)
    target_compile_options(${target} PRIVATE -fno-pie)
    target_link_options(${target} PRIVATE -static)
    if(NOT STOCKADE_MUSL_FOUND)
        return()
    endif()
    set(links ${PROJECT_BINARY_DIR}/musl-include)
    file(MAKE_DIRECTORY ${links})
    foreach(link linux:${KERNEL_INCLUDE_DIR} asm-generic:${KERNEL_INCLUDE_DIR} asm:${KERNEL_ASM_INCLUDE_DIR}
            protobuf-c:${PROTOBUF_C_INCLUDE_DIR} zstd.h:${ZSTD_INCLUDE_DIR} zstd_errors.h:${ZSTD_INCLUDE_DIR})
        string(REGEX MATCH "^[^:]+" name ${link})
        string(REGEX REPLACE "^[^:]+:" "" folder ${link})
        file(CREATE_LINK ${folder}/${name} ${links}/${name} SYMBOLIC)
    endforeach()
    target_compile_options(${target} PRIVATE -nostdinc "SHELL:-isystem ${MUSL_INCLUDE_DIR}" "SHELL:-isystem ${links}")
    target_link_options(${target} PRIVATE -nostdlib)
    target_link_libraries(${target} PRIVATE ${MUSL_LIBRARY_DIR}/crt1.o ${MUSL_LIBRARY_DIR}/crti.o ${MUSL_LIBRARY_DIR}/libc.a
        ${libgcc} ${MUSL_LIBRARY_DIR}/libc.a ${MUSL_LIBRARY_DIR}/crtn.o)
endfunction()
