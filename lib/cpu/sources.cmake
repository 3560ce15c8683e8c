# SPDX-License-Identifier: Apache-2.0
#
# The CPU backend's sources, relative to lib/.
set(VOLUP_CPU_SOURCES
  cpu/cpu_device.cpp
  cpu/reference.cpp
  cpu/thread_pool.cpp)
