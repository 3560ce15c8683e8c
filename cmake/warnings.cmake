# SPDX-License-Identifier: Apache-2.0
#
# Warnings for our own code, as one target to link privately.
add_library(volup_warnings INTERFACE)
option(VOLUP_WERROR "Warnings are errors" OFF)
target_compile_options(
  volup_warnings
  INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow>
    # GCC 12 takes std::string + literal for overlapping copies (GCC bug 105651).
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${VOLUP_WERROR}>>:-Werror>)
