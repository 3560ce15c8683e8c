# SPDX-License-Identifier: Apache-2.0
#
# What the CMake targets of all loader modules have in common.
set(VOLUP_LOADER_MAP "${CMAKE_CURRENT_LIST_DIR}/module.map")

# volup_loader_module(NAME [LINK_OPTIONS...]): what every loader module is beside its sources and the
# libraries that it stands on: a shared object in volup/ beside libvolup that exports its opening
# function alone and lacks no symbol.
function(volup_loader_module name)
  target_sources(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/module_abi.h
                                 ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/module_support.h)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE volup_headers $<TARGET_NAME_IF_EXISTS:volup_warnings>)
  target_link_options(${name} PRIVATE "LINKER:--version-script=${VOLUP_LOADER_MAP}"
                      LINKER:--no-undefined LINKER:--as-needed ${ARGN})
  set_target_properties(${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${VOLUP_LOADER_MAP}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/volup")
  install(TARGETS ${name} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/volup")
endfunction()
