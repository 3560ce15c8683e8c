/* SPDX-License-Identifier: Apache-2.0
 *
 * volup.h as pedantic C99, twice, before anything else: it needs no other header and may be met
 * again. Compiling is the test.
 */
#include "volup/volup.h"

/* A prototype of C and not of C++: a declaration without void would take any arguments. */
int32_t (*const abi_version)(void) = volup_version;
const char* (*const abi_last_error)(void) = volup_last_error;
