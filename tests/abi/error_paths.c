/* SPDX-License-Identifier: Apache-2.0
 *
 * Every error path of the C ABI, from C: the status, its words, out-parameters left alone, and the
 * session still giving right numbers afterwards. The cases are in error_paths_*.c, one file a room.
 *
 *   abi_error_paths [--cuda] ROOM [CASE]
 */
#include <stdio.h>

#include "harness.h"

enum { kSkipped = 77 };

int main(int argc, char** argv) {
  static const test_room rooms[] = {
      {"model", model_cases},   {"problem", problem_cases}, {"session", session_cases},
      {"tensor", tensor_cases}, {"threads", thread_cases},
  };
  int at = 1;
  if (at < argc && strcmp(argv[at], "--cuda") == 0) {
    int32_t count = 0;
    ++at;
    if (volup_device_count(VOLUP_DEVICE_CUDA, &count) != VOLUP_STATUS_OK || count == 0) {
      printf("SKIPPED (no CUDA device of compute capability 8.0 or more)\n");
      return kSkipped;
    }
    test_device = VOLUP_DEVICE_CUDA;
  }
  for (size_t i = 0; at < argc && i < sizeof(rooms) / sizeof(rooms[0]); ++i) {
    if (strcmp(argv[at], rooms[i].name) != 0) continue;
    return run_room(&rooms[i], at + 1 < argc ? argv[at + 1] : NULL) == 0 ? 0 : 1;
  }
  fprintf(stderr, "usage: abi_error_paths [--cuda] model|problem|session|tensor|threads [CASE]\n");
  return 2;
}
