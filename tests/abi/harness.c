/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* pthreads in strict C99 */
#include "harness.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int32_t test_device = VOLUP_DEVICE_CPU;

static pthread_mutex_t failure_mutex = PTHREAD_MUTEX_INITIALIZER;
static const char* current_room = "";
static const char* current_case = "";
static int failures_of_case = 0;

void report_failure(const char* file, int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&failure_mutex);
  fprintf(stderr, "FAILED %s/%s, %s:%d: ", current_room, current_case, file, line);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n  rerun: abi_error_paths %s%s %s\n",
          test_device == VOLUP_DEVICE_CUDA ? "--cuda " : "", current_room, current_case);
  ++failures_of_case;
  pthread_mutex_unlock(&failure_mutex);
  va_end(arguments);
}

int run_room(const test_room* room, const char* only) {
  int failed = 0;
  int run = 0;
  current_room = room->name;
  for (const test_case* test = room->cases; test->name != NULL; ++test) {
    if (only != NULL && strcmp(only, test->name) != 0) continue;
    current_case = test->name;
    failures_of_case = 0;
    test->run();
    printf("%s %s/%s\n", failures_of_case == 0 ? "PASSED" : "FAILED", room->name, test->name);
    ++run;
    if (failures_of_case != 0) ++failed;
  }
  if (run == 0) {
    fprintf(stderr, "no case '%s' in room '%s'\n", only, room->name);
    return 1;
  }
  return failed;
}

void check_accepted(const char* file, int line, const char* call, volup_status got) {
  if (got == VOLUP_STATUS_OK) return;
  report_failure(file, line, "%s: got %s (%s), need ok", call, volup_status_name(got),
                 volup_last_error());
}

void check_refused(const char* file, int line, const char* call, volup_status got,
                   volup_status want, const char* fragment) {
  const char* text = volup_last_error();
  if (got != want) {
    report_failure(file, line, "%s: got %s (%s), need %s", call, volup_status_name(got), text,
                   volup_status_name(want));
  } else if (text[0] == '\0') {
    report_failure(file, line, "%s: got no words, need some", call);
  } else if (strstr(text, fragment) == NULL) {
    report_failure(file, line, "%s: got the words '%s', need '%s' in them", call, text, fragment);
  } else if (strchr(text, '\n') != NULL) {
    report_failure(file, line, "%s: got several lines, need one: %s", call, text);
  }
}

volup_geometry make_geometry(int64_t in_channels, int64_t out_channels, int64_t kernel) {
  volup_geometry g;
  memset(&g, 0, sizeof(g));
  g.struct_size = sizeof(g);
  g.in_channels = in_channels;
  g.out_channels = out_channels;
  g.groups = 1;
  for (int axis = 0; axis < 3; ++axis) {
    g.kernel[axis] = kernel;
    g.stride[axis] = 1;
    g.dilation[axis] = 1;
  }
  return g;
}

volup_epilogue make_epilogue(volup_epilogue_kind kind) {
  volup_epilogue e;
  memset(&e, 0, sizeof(e));
  ACCEPTED(volup_epilogue_init(kind, &e));
  return e;
}

volup_session_options make_options(void) {
  volup_session_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.device_type = test_device;
  return options;
}

volup_tensor make_tensor(void* data, const int64_t shape[5]) {
  volup_tensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.struct_size = sizeof(tensor);
  tensor.data = data;
  tensor.dtype = VOLUP_DTYPE_FP32;
  tensor.device_type = VOLUP_DEVICE_CPU;
  tensor.rank = 5;
  memcpy(tensor.shape, shape, sizeof(tensor.shape));
  return tensor;
}

/* Seeded values in [-2, 2), multiples of 1/64. */
static uint32_t random_state;
static float next_value(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(random_state >> 24) / 64.0f - 2.0f;
}

enum { kIn = 3, kOut = 4, kTaps = 2 * 3 * 3 };
static float model_weight[kIn * kOut * kTaps];
static float model_bias[kOut];

static volup_geometry model_geometry(void) {
  volup_geometry g = make_geometry(kIn, kOut, 3);
  g.kernel[0] = 2;
  g.stride[1] = g.stride[2] = 2;
  g.padding_begin[1] = g.padding_end[1] = 1;
  g.padding_end[2] = 1;
  g.output_padding[1] = 1;
  return g;
}

volup_model* make_model(volup_epilogue_kind kind) {
  const volup_geometry geometry = model_geometry();
  const volup_epilogue epilogue = make_epilogue(kind);
  random_state = 7;
  for (int i = 0; i < kIn * kOut * kTaps; ++i) model_weight[i] = next_value() / 4;
  for (int i = 0; i < kOut; ++i) model_bias[i] = next_value();
  volup_model_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  desc.geometry = &geometry;
  desc.epilogue = &epilogue;
  desc.weight = model_weight;
  desc.weight_count = kIn * kOut * kTaps;
  desc.bias = model_bias;
  desc.bias_count = kOut;
  volup_model* model = NULL;
  ACCEPTED(volup_model_create(&desc, &model));
  if (model == NULL) exit(1);
  return model;
}

/* y[n][co] of every voxel by the scatter definition: each input position adds to the outputs its
 * taps reach. */
static void convolve(const fixture* f, double* y) {
  const volup_geometry g = model_geometry();
  const int64_t* in = f->in_shape;
  const int64_t* out = f->out_shape;
  const int64_t out_plane = out[2] * out[3] * out[4];
  for (int64_t i = 0; i < in[0] * kOut * out_plane; ++i) y[i] = model_bias[i / out_plane % kOut];
  for (int64_t i = 0; i < f->in_count; ++i) {
    const int64_t at[3] = {i / (in[3] * in[4]) % in[2], i / in[4] % in[3], i % in[4]};
    const int64_t ci = i / (in[2] * in[3] * in[4]) % kIn;
    const int64_t n = i / (in[2] * in[3] * in[4]) / kIn;
    for (int tap = 0; tap < kTaps; ++tap) {
      const int64_t k[3] = {tap / 9, tap / 3 % 3, tap % 3};
      int64_t o[3];
      int inside = 1;
      for (int axis = 0; axis < 3; ++axis) {
        o[axis] = at[axis] * g.stride[axis] - g.padding_begin[axis] + k[axis];
        inside = inside && o[axis] >= 0 && o[axis] < out[2 + axis];
      }
      if (!inside) continue;
      for (int co = 0; co < kOut; ++co) {
        y[(n * kOut + co) * out_plane + (o[0] * out[3] + o[1]) * out[4] + o[2]] +=
            (double)f->x_values[i] * model_weight[(ci * kOut + co) * kTaps + tap];
      }
    }
  }
}

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }
static double clamp(double v, double low, double high) {
  return v < low ? low : v > high ? high : v;
}

static void finish(fixture* f, const double* y) {
  const int64_t plane = f->out_shape[2] * f->out_shape[3] * f->out_shape[4];
  for (int64_t n = 0; n < f->out_shape[0]; ++n) {
    for (int64_t v = 0; v < plane; ++v) {
      const double* logits = y + n * kOut * plane + v;
      double sum = 0;
      for (int c = 0; c < kOut; ++c) sum += exp(logits[c * plane]);
      if (f->kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP) {
        f->expected[n * plane + v] = clamp(log(sum) * sigmoid(log(sum) + 3) / 6, -1, 1);
        continue;
      }
      for (int c = 0; c < kOut; ++c) {
        const int64_t at = (n * kOut + c) * plane + v;
        const double t = y[at] + f->add_values[at];
        f->expected[at] = f->kind == VOLUP_EPILOGUE_IDENTITY ? y[at]
                          : f->kind == VOLUP_EPILOGUE_SOFTMAX_SIGMOID
                              ? sigmoid(exp(y[at]) / sum)
                              : t * clamp(t + 3, 0, 6) / 6 * t;
      }
    }
  }
}

fixture* fixture_create(volup_epilogue_kind kind) {
  static double y[kMostElements];
  fixture* f = calloc(1, sizeof(*f));
  if (f == NULL) exit(1);
  f->kind = kind;
  f->model = make_model(kind);
  const volup_session_options options = make_options();
  ACCEPTED(volup_session_create(f->model, &options, &f->session));
  const int64_t in_shape[5] = {2, kIn, 2, 3, 4};
  memcpy(f->in_shape, in_shape, sizeof(in_shape));
  ACCEPTED(volup_model_output_shape(f->model, f->in_shape, f->out_shape));
  f->in_count = f->out_count = 1;
  for (int axis = 0; axis < 5; ++axis) f->in_count *= f->in_shape[axis];
  for (int axis = 0; axis < 5; ++axis) f->out_count *= f->out_shape[axis];
  random_state = 11;
  for (int64_t i = 0; i < f->in_count; ++i) f->x_values[i] = next_value();
  for (int64_t i = 0; i < f->out_count; ++i) f->add_values[i] = next_value();
  convolve(f, y);
  finish(f, y);
  f->x = make_tensor(f->x_values, f->in_shape);
  f->add = make_tensor(f->add_values, f->out_shape);
  f->out = make_tensor(fixture_out(f), f->out_shape);
  return f;
}

void fixture_destroy(fixture* f) {
  volup_session_destroy(f->session);
  volup_model_destroy(f->model);
  free(f);
}

float* fixture_out(fixture* f) { return f->out_memory + kCanary; }

const volup_tensor* fixture_add(const fixture* f) {
  return f->kind == VOLUP_EPILOGUE_ADD_HARDSWISH ? &f->add : NULL;
}

enum { kPoisonByte = 0xff }; /* four of them are a NaN */

void fixture_poison(fixture* f) { memset(f->out_memory, kPoisonByte, sizeof(f->out_memory)); }

static int is_poison(const float* values, int64_t count) {
  const unsigned char* bytes = (const unsigned char*)values;
  for (size_t i = 0; i < (size_t)count * sizeof(float); ++i) {
    if (bytes[i] != kPoisonByte) return 0;
  }
  return 1;
}

void fixture_check_untouched(const char* file, int line, const fixture* f) {
  if (!is_poison(f->out_memory, 2 * kCanary + kMostElements)) {
    report_failure(file, line, "out was touched by a call that failed");
  }
}

void fixture_check_works(const char* file, int line, fixture* f) {
  fixture_poison(f);
  const volup_status status = volup_session_run(f->session, &f->x, fixture_add(f), &f->out);
  check_accepted(file, line, "the session's next good run", status);
  if (status != VOLUP_STATUS_OK) return;
  for (int64_t i = 0; i < f->out_count; ++i) {
    const double got = fixture_out(f)[i];
    if (!(fabs(got - f->expected[i]) <= 2e-5 * (1 + fabs(f->expected[i])))) {
      report_failure(file, line, "out[%lld]: got %.9g, need %.9g", (long long)i, got,
                     f->expected[i]);
      return;
    }
  }
  if (!is_poison(f->out_memory, kCanary) ||
      !is_poison(fixture_out(f) + f->out_count, kMostElements - f->out_count + kCanary)) {
    report_failure(file, line, "memory around out was written");
  }
}
