# SPDX-License-Identifier: Apache-2.0
#
# Warnings for our own code, as one target to link privately.
add_library(volup_warnings INTERFACE)
option(VOLUP_WERROR "Warnings are errors" OFF)
target_compile_options(
  volup_warnings
  INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${VOLUP_WERROR}>>:-Werror>)
