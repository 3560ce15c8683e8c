# SPDX-License-Identifier: Apache-2.0
#
# What is installed: headers, library, loader modules and tool (each from its own folder), package
# files for CMake and pkg-config, and what to read first.
set(VOLUP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/volup)

install(DIRECTORY include/volup DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN "*.hpp")
install(TARGETS volup EXPORT volup_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT volup_targets NAMESPACE volup:: FILE volup-targets.cmake
        DESTINATION ${VOLUP_PACKAGE_DIR})

configure_package_config_file(cmake/volup-config.cmake.in ${CMAKE_BINARY_DIR}/volup-config.cmake
                              INSTALL_DESTINATION ${VOLUP_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/volup-config-version.cmake
                                 COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/volup-config.cmake ${CMAKE_BINARY_DIR}/volup-config-version.cmake
        DESTINATION ${VOLUP_PACKAGE_DIR})

# The .pc file finds its prefix from where it lies, so an installed tree can be moved.
file(RELATIVE_PATH VOLUP_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/volup.pc.in ${CMAKE_BINARY_DIR}/volup.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/volup.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
