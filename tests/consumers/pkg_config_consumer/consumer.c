/* SPDX-License-Identifier: Apache-2.0
 *
 * The C program of somebody else, built with the flags that pkg-config gives: prints the version of
 * the library it runs with and fails where that is not the header's.
 */
#include <stdio.h>
#include <volup/volup.h>

int main(void) {
  volup_geometry geometry = {sizeof(geometry), 1,         1,         1,         {1, 1, 1},
                             {1, 1, 1},        {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}};
  volup_epilogue epilogue;
  const float weight = 2;
  volup_model_desc desc = {sizeof(desc), &geometry, &epilogue, &weight, 1, NULL, 0};
  const int64_t input[5] = {1, 1, 2, 3, 4};
  int64_t output[5] = {0};
  volup_model* model = NULL;
  if (volup_epilogue_init(VOLUP_EPILOGUE_SOFTMAX_SIGMOID, &epilogue) != VOLUP_STATUS_OK ||
      volup_model_create(&desc, &model) != VOLUP_STATUS_OK ||
      volup_model_output_shape(model, input, output) != VOLUP_STATUS_OK) {
    fprintf(stderr, "%s\n", volup_last_error());
    return 1;
  }
  volup_model_destroy(model);
  printf("volup %d, output width %d\n", (int)volup_version(), (int)output[4]);
  return volup_version() / 10000 == VOLUP_VERSION_MAJOR && output[4] == 4 ? 0 : 1;
}
