# SPDX-License-Identifier: Apache-2.0
# What is installed beside programs, library and header, which their own folders install: the default configuration,
# the unit, the account, manual pages, completion.
#
# Units, accounts and folders belong below /usr/lib or /lib, not below the prefix, wherever that is: systemd looks nowhere
# else. So they are installed only when the prefix is /usr (as in the package).
configure_file(${PROJECT_SOURCE_DIR}/deploy/systemd/stockade.service ${PROJECT_BINARY_DIR}/stockade.service @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/deploy/systemd/stockade-exporter.service ${PROJECT_BINARY_DIR}/stockade-exporter.service @ONLY)

install(FILES ${PROJECT_SOURCE_DIR}/deploy/rules/tripwires.yaml ${PROJECT_SOURCE_DIR}/deploy/rules/examples.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/stockade/rules)
if(EXISTS ${PROJECT_SOURCE_DIR}/deploy/stockaded.yaml)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/stockaded.yaml DESTINATION ${CMAKE_INSTALL_FULL_SYSCONFDIR}/stockade)
endif()
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    install(FILES ${PROJECT_BINARY_DIR}/stockade.service DESTINATION /lib/systemd/system)
    if(STOCKADE_EXPORTER)
        install(FILES ${PROJECT_BINARY_DIR}/stockade-exporter.service DESTINATION /lib/systemd/system)
    endif()
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME stockade.conf)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME stockade.conf)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/lintian-overrides DESTINATION share/lintian/overrides RENAME stockade)
endif()

if(STOCKADE_EXPORTER)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/exporter.yaml DESTINATION ${CMAKE_INSTALL_FULL_SYSCONFDIR}/stockade)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/prometheus/alerts.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/stockade/prometheus)
    install(FILES ${PROJECT_SOURCE_DIR}/deploy/grafana/stockade.json DESTINATION ${CMAKE_INSTALL_DATADIR}/stockade/grafana)
endif()

# The public schema, for whoever generates a client.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto/stockade DESTINATION ${CMAKE_INSTALL_DATADIR}/stockade/proto
    FILES_MATCHING PATTERN "*.proto")
install(FILES ${PROJECT_SOURCE_DIR}/proto/WIRE.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

find_program(GZIP gzip REQUIRED)
# Compressed as Debian wants it: without a name and a time, so two builds are the same.
function(stockade_install_gz in out folder)
    set(gz ${PROJECT_BINARY_DIR}/doc/${out}.gz)
    add_custom_command(OUTPUT ${gz} DEPENDS ${in} COMMAND ${GZIP} -9nc ${in} > ${gz} VERBATIM)
    set_property(GLOBAL APPEND PROPERTY stockade_doc ${gz})
    install(FILES ${gz} DESTINATION ${folder})
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/doc)
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/man/*.[1-8] ${PROJECT_SOURCE_DIR}/deploy/man/*.[1-8])
foreach(page ${pages})
    get_filename_component(name ${page} NAME)
    string(REGEX REPLACE ".*\\." "" section ${name})
    stockade_install_gz(${page} ${name} ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
stockade_install_gz(${PROJECT_SOURCE_DIR}/deploy/debian/changelog changelog ${CMAKE_INSTALL_DOCDIR})
# Completion is what the command itself writes.
if(TARGET stockade)
    foreach(shell bash:bash-completion/completions/stockade zsh:zsh/vendor-completions/_stockade
            fish:fish/vendor_completions.d/stockade.fish)
        string(REGEX MATCH "^[a-z]+" name ${shell})
        string(REGEX REPLACE "^[a-z]+:" "" where ${shell})
        set(out ${PROJECT_BINARY_DIR}/doc/${where})
        get_filename_component(folder ${out} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(OUTPUT ${out} DEPENDS stockade COMMAND stockade completion ${name} > ${out} VERBATIM)
        set_property(GLOBAL APPEND PROPERTY stockade_doc ${out})
        get_filename_component(folder ${where} DIRECTORY)
        install(FILES ${out} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
    endforeach()
endif()

get_property(all GLOBAL PROPERTY stockade_doc)
add_custom_target(stockade_doc ALL DEPENDS ${all})
install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/ARCHITECTURE.md ${PROJECT_SOURCE_DIR}/SECURITY.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
