# SPDX-License-Identifier: Apache-2.0
#
# The CPU backend's sources, relative to lib/. Needs Highway's headers (libhwy-dev), not its library.
set(VOLUP_CPU_SOURCES
  cpu/cpu_device.cpp
  cpu/fused.cpp
  cpu/fused_plan.cpp
  cpu/fused_simd.cpp
  cpu/reference.cpp
  cpu/thread_pool.cpp)

# The same bits from every compiler and option: products and sums are fused where the source says
# so and nowhere else. Under AddressSanitizer, GCC 12 takes vectors handed on by value for variables
# that have left their scope.
set_source_files_properties(cpu/fused_simd.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-sanitize-address-use-after-scope")
