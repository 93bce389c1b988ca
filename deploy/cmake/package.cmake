# SPDX-License-Identifier: Apache-2.0
# `cpack` in the build folder of the release preset makes one .deb. Its libraries are found by dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stockade)
set(CPACK_PACKAGE_VENDOR "Stockade")
set(CPACK_PACKAGE_CONTACT "Stockade maintainers <maintainers@stockade.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sandboxes for the code of AI agents")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "A broker that runs the code of AI agents where it can do no harm:
each job in a sandbox of its own, with limits, and a bill with the result.
It needs a Linux kernel from 6.1 on and root for one small process; no
Docker, no hypervisor.")
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_CURRENT_BINARY_DIR}/client)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, e2fsprogs, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postrm
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/triggers)
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
include(CPack)
