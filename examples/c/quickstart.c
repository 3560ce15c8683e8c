/* SPDX-License-Identifier: Apache-2.0
 *
 * The C example of README.md: what follows this comment is there word for word, and a test compares
 * the two. It expects a logsumexp_swish_clamp model of 3 input channels in model.h5.
 */
#include <stdio.h>
#include <volup/volup.h>

int main(void) {
  float x[] = {1, 2, 3, 4, 5, 6}, y[3];
  volup_tensor in = {sizeof(in), x, VOLUP_DTYPE_FP32, VOLUP_DEVICE_CPU, 0, 5, {1, 3, 1, 1, 2}, {0}};
  volup_tensor out = in;
  out.data = y, out.shape[1] = 1, out.shape[4] = 3;
  volup_model* model = NULL;
  volup_session* session = NULL;
  if (volup_model_load("model.h5", NULL, &model) || volup_session_create(model, NULL, &session) ||
      volup_session_run(session, &in, NULL, &out)) {
    return fprintf(stderr, "%s\n", volup_last_error()), 1;
  }
  printf("%g %g %g\n", y[0], y[1], y[2]);
  volup_session_destroy(session);
  volup_model_destroy(model);
}
