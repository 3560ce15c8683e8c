# SPDX-License-Identifier: Apache-2.0
#
# The CUDA side of volup_core. Portable kernels: sm_80 machine code, compute_80 PTX for whatever
# comes later, and 90a machine code. Kernels for one architecture alone: that architecture, no PTX.
include(cuda/sources.cmake)

set(VOLUP_GENCODE_PORTABLE
    -gencode=arch=compute_80,code=[sm_80,compute_80] -gencode=arch=compute_90a,code=sm_90a)
set(VOLUP_GENCODE_SM90A -gencode=arch=compute_90a,code=sm_90a)

function(volup_cuda_objects name gencode)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES OFF)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
                                             ${PROJECT_SOURCE_DIR}/lib)
  target_compile_definitions(${name} PRIVATE VOLUP_BUILDING VOLUP_WITH_CUDA=1)
  target_compile_options(
    ${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gencode} -lineinfo
                    -Xcompiler=-fvisibility=hidden,-fvisibility-inlines-hidden,-fPIC>)
  target_link_libraries(${name} PRIVATE CUDA::toolkit)
  target_sources(volup_core PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

volup_cuda_objects(volup_cuda_portable "${VOLUP_GENCODE_PORTABLE}" ${VOLUP_CUDA_SOURCES})
if(VOLUP_CUDA_SM90A_SOURCES)
  volup_cuda_objects(volup_cuda_sm90a "${VOLUP_GENCODE_SM90A}" ${VOLUP_CUDA_SM90A_SOURCES})
endif()
target_link_libraries(volup_core PUBLIC CUDA::cudart_static)
