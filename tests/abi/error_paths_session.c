/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions and device memory: options, devices that are not there, allocators, workspace, prepare,
 * describe, time, buffers.
 */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;

static void create_arguments(void) {
  volup_model* model = make_model(VOLUP_EPILOGUE_IDENTITY);
  volup_session* session = POISON;
  const volup_session_options options = make_options();
  REFUSED_UNTOUCHED(session, volup_session_create(NULL, &options, &session), invalid,
                    "model: got NULL");
  REFUSED(volup_session_create(model, &options, NULL), invalid, "session: got NULL");
  volup_model_destroy(model);
}

#define OPTIONS_REFUSED(change, status, fragment)                                            \
  do {                                                                                       \
    volup_session_options options = make_options();                                          \
    volup_session* session_ = POISON;                                                        \
    change;                                                                                  \
    REFUSED_UNTOUCHED(session_, volup_session_create(f->model, &options, &session_), status, \
                      fragment);                                                             \
  } while (0)

static void* no_memory(void* context, size_t bytes) {
  (void)context;
  (void)bytes;
  return NULL;
}

typedef struct newer_options {
  volup_session_options base;
  int64_t later;
} newer_options;

static void create_options(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  OPTIONS_REFUSED(options.struct_size = 0, invalid, "options.struct_size: got 0");
  OPTIONS_REFUSED(options.struct_size -= 1, invalid, "options.struct_size");
  OPTIONS_REFUSED(options.device_type = 3, invalid, "device_type: got 3");
  OPTIONS_REFUSED(options.device_type = -1, invalid, "device_type: got -1");
  OPTIONS_REFUSED(options.device_index = -1, invalid, "device_index: got -1");
  OPTIONS_REFUSED(options.precision = 4, invalid, "precision: got 4");
  OPTIONS_REFUSED(options.io_dtype = 3, invalid, "io_dtype: got 3");
  OPTIONS_REFUSED(options.threads = -1, invalid, "threads: got -1");
  OPTIONS_REFUSED(options.threads = INT_MAX, invalid, "threads: got 2147483647");
  OPTIONS_REFUSED(options.precision = VOLUP_PRECISION_FP16, invalid,
                  "precision fp16: got I/O dtype fp32, need fp16");
  OPTIONS_REFUSED(options.kernel = "cpu/fast", invalid, "kernel: got 'cpu/fast', need one of ");
  OPTIONS_REFUSED(options.kernel = test_device == VOLUP_DEVICE_CPU ? "cuda/simt" : "cpu/reference",
                  invalid, "kernel: got '");
  OPTIONS_REFUSED(options.allocator.allocate = no_memory, invalid, "allocator: got one function");
  newer_options newer;
  memset(&newer, 0, sizeof(newer));
  newer.base = make_options();
  newer.base.struct_size = sizeof(newer);
  newer.later = 1;
  volup_session* session = POISON;
  REFUSED_UNTOUCHED(session, volup_session_create(f->model, &newer.base, &session), invalid,
                    "fields set that version 1.0 does not know");
  newer.later = 0;
  ACCEPTED(volup_session_create(f->model, &newer.base, &session));
  volup_session_destroy(session);
  CHECK_WORKS(f);
  fixture_destroy(f);
}

/* A GPU that is not there: words, and the CPU still works. */
static void absent_device(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  int32_t count = -1;
  ACCEPTED(volup_device_count(VOLUP_DEVICE_CUDA, &count));
  printf("  CUDA devices: %d\n", (int)count);
  volup_session_options options = make_options();
  options.device_type = VOLUP_DEVICE_CUDA;
  options.device_index = count;
  volup_session* session = POISON;
  REFUSED_UNTOUCHED(session, volup_session_create(f->model, &options, &session),
                    VOLUP_STATUS_UNAVAILABLE, "");
  volup_buffer* buffer = POISON;
  REFUSED_UNTOUCHED(buffer, volup_buffer_create(VOLUP_DEVICE_CUDA, count, 64, &buffer),
                    VOLUP_STATUS_UNAVAILABLE, "");
  CHECK_WORKS(f);
  fixture_destroy(f);
}

/* AUTO always gives a session, and says what it became. */
static void automatic_device(void) {
  volup_model* model = make_model(VOLUP_EPILOGUE_IDENTITY);
  volup_session* session = NULL;
  ACCEPTED(volup_session_create(model, NULL, &session));
  volup_model_destroy(model); /* the session outlives it */
  int32_t type = -7;
  int32_t index = -7;
  int32_t count = 0;
  ACCEPTED(volup_device_count(VOLUP_DEVICE_CUDA, &count));
  ACCEPTED(volup_session_device(session, &type, &index));
  CHECK(type == (count == 0 ? VOLUP_DEVICE_CPU : VOLUP_DEVICE_CUDA) && index == 0);
  const int64_t input[5] = {1, 3, 2, 3, 4};
  const char* json = NULL;
  ACCEPTED(volup_session_describe(session, input, &json));
  CHECK(json != NULL && strstr(json, "\"device_note\":") != NULL);
  /* On a machine without a GPU the note says why the CPU was taken. */
  CHECK(count != 0 || strstr(json, "\"device_note\":\"\"") == NULL);
  volup_session_destroy(session);
}

static void null_session(void) {
  const int64_t input[5] = {1, 3, 2, 3, 4};
  int32_t type = -7;
  size_t bytes = 7;
  const char* json = POISON;
  volup_timing timing;
  memset(&timing, 0x5a, sizeof(timing));
  volup_tensor tensor = make_tensor(NULL, input);
  const char* words = "session: got NULL";
  REFUSED_UNTOUCHED(type, volup_session_device(NULL, &type, &type), invalid, words);
  REFUSED_UNTOUCHED(bytes, volup_session_workspace_size(NULL, input, &bytes), invalid, words);
  REFUSED(volup_session_set_workspace(NULL, NULL, 0), invalid, words);
  REFUSED(volup_session_prepare(NULL, input), invalid, words);
  REFUSED_UNTOUCHED(json, volup_session_describe(NULL, input, &json), invalid, words);
  REFUSED(volup_session_run(NULL, &tensor, NULL, &tensor), invalid, words);
  REFUSED(volup_session_enqueue(NULL, &tensor, NULL, &tensor, NULL), invalid, words);
  REFUSED_UNTOUCHED(timing, volup_session_time(NULL, input, 1, &timing), invalid, words);
  volup_session_destroy(NULL);
}

static void prepare_arguments(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  const char* json = POISON;
  size_t bytes = 7;
  int64_t wrong[5] = {2, 4, 2, 3, 4};
  REFUSED(volup_session_prepare(f->session, NULL), invalid, "input: got NULL");
  REFUSED(volup_session_prepare(f->session, wrong), invalid, "input channels: got 4, need 3");
  REFUSED_UNTOUCHED(json, volup_session_describe(f->session, NULL, &json), invalid,
                    "input: got NULL");
  REFUSED(volup_session_describe(f->session, f->in_shape, NULL), invalid, "json: got NULL");
  REFUSED_UNTOUCHED(json, volup_session_describe(f->session, wrong, &json), invalid,
                    "input channels");
  REFUSED_UNTOUCHED(bytes, volup_session_workspace_size(f->session, NULL, &bytes), invalid,
                    "input: got NULL");
  REFUSED(volup_session_workspace_size(f->session, f->in_shape, NULL), invalid, "bytes: got NULL");
  wrong[1] = 3;
  wrong[2] = INT64_MAX;
  REFUSED(volup_session_prepare(f->session, wrong), invalid, "2^63");
  REFUSED_UNTOUCHED(bytes, volup_session_workspace_size(f->session, wrong, &bytes), invalid,
                    "2^63");
  CHECK_WORKS(f);
  fixture_destroy(f);
}

static void set_workspace(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  static float words[64];
  REFUSED(volup_session_set_workspace(f->session, words, 0), invalid, "workspace: got memory");
  REFUSED(volup_session_set_workspace(f->session, NULL, 256), invalid, "workspace: got NULL");
  REFUSED(volup_session_set_workspace(f->session, (char*)words + 1, 16), invalid,
          "not a multiple of 256");
  CHECK_WORKS(f);
  fixture_destroy(f);
}

/* The caller's workspace of exactly the size asked for serves; one byte less does not, unless the
 * work can be cut in pieces. */
static void workspace_size_is_exact(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  size_t bytes = 0;
  ACCEPTED(volup_session_workspace_size(f->session, f->in_shape, &bytes));
  printf("  workspace: %zu bytes\n", bytes);
  volup_buffer* buffer = NULL;
  ACCEPTED(volup_buffer_create(test_device, 0, bytes, &buffer));
  if (bytes != 0) {
    ACCEPTED(volup_session_set_workspace(f->session, volup_buffer_data(buffer), bytes));
    CHECK_WORKS(f);
    ACCEPTED(volup_session_set_workspace(f->session, NULL, 0));
  }
  CHECK_WORKS(f);
  volup_session_options options = make_options();
  options.workspace_limit = 1;
  volup_session* limited = NULL;
  ACCEPTED(volup_session_create(f->model, &options, &limited));
  if (bytes > 1) {
    size_t limited_bytes = 7;
    const volup_status status = volup_session_workspace_size(limited, f->in_shape, &limited_bytes);
    CHECK(status == VOLUP_STATUS_OUT_OF_MEMORY ? limited_bytes == 7 : limited_bytes <= 1);
    if (status == VOLUP_STATUS_OUT_OF_MEMORY) {
      REFUSED(volup_session_prepare(limited, f->in_shape), VOLUP_STATUS_OUT_OF_MEMORY,
              "workspace limit: got 1");
    }
  }
  volup_session_destroy(limited);
  fixture_destroy(f);
  volup_buffer_destroy(buffer);
}

/* An allocator that counts, and gives nothing, or memory off by 8 bytes, when told to. */
typedef struct counting {
  int live;
  int calls;
  int fail_at; /* the call that gets NULL; 0: none */
  size_t shift;
} counting;

static void* counting_allocate(void* context, size_t bytes) {
  counting* c = context;
  void* memory = NULL;
  if (++c->calls == c->fail_at) return NULL;
  if (posix_memalign(&memory, 256, bytes + 256) != 0) return NULL;
  ++c->live;
  return (char*)memory + c->shift;
}

static void counting_free(void* context, void* memory, size_t bytes) {
  counting* c = context;
  (void)bytes;
  --c->live;
  free((char*)memory - c->shift);
}

static void failing_allocator(void) {
  if (test_device != VOLUP_DEVICE_CPU) return; /* host memory, which the CPU alone can use */
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  volup_session_destroy(f->session);
  counting counts;
  memset(&counts, 0, sizeof(counts));
  volup_session_options options = make_options();
  options.allocator.allocate = counting_allocate;
  options.allocator.free = counting_free;
  options.allocator.context = &counts;
  ACCEPTED(volup_session_create(f->model, &options, &f->session));
  /* Every allocation of a prepare fails once; what the earlier ones gave is not lost. */
  int failed = 0;
  for (int at = 1;; ++at) {
    counts.calls = 0;
    counts.fail_at = at;
    if (volup_session_prepare(f->session, f->in_shape) == VOLUP_STATUS_OK) break;
    ++failed;
    CHECK(strstr(volup_last_error(), "the caller's allocator: got NULL for ") != NULL);
    if (at > 100) break;
  }
  printf("  allocations that failed once: %d\n", failed);
  counts.fail_at = 0;
  CHECK_WORKS(f);
  /* The timing's own memory, last. */
  volup_timing timing;
  memset(&timing, 0x5a, sizeof(timing));
  timing.struct_size = sizeof(timing);
  counts.calls = 0;
  counts.fail_at = 1;
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, f->in_shape, 2, &timing),
                    VOLUP_STATUS_OUT_OF_MEMORY, "the caller's allocator: got NULL for ");
  counts.fail_at = 0;
  CHECK_WORKS(f);
  volup_session_destroy(f->session);
  CHECK(counts.live == 0);

  counts.shift = 8;
  ACCEPTED(volup_session_create(f->model, &options, &f->session));
  timing.struct_size = sizeof(timing);
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, f->in_shape, 2, &timing), invalid,
                    "not aligned to 256");
  counts.shift = 0;
  CHECK_WORKS(f);
  fixture_destroy(f);
  CHECK(counts.live == 0);
}

static void time_arguments(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_IDENTITY);
  volup_timing timing;
  memset(&timing, 0x5a, sizeof(timing));
  REFUSED(volup_session_time(f->session, f->in_shape, 1, NULL), invalid, "timing: got NULL");
  timing.struct_size = 4;
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, f->in_shape, 1, &timing), invalid,
                    "timing.struct_size: got 4");
  timing.struct_size = sizeof(timing);
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, NULL, 1, &timing), invalid,
                    "input: got NULL");
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, f->in_shape, -1, &timing), invalid,
                    "iterations: got -1");
  const int64_t empty[5] = {0, 3, 2, 3, 4};
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, empty, 1, &timing), invalid,
                    "without elements");
  ACCEPTED(volup_session_time(f->session, f->in_shape, 3, &timing));
  CHECK(timing.iterations == 3 && timing.buffers >= 1 && timing.min_ms <= timing.median_ms &&
        timing.median_ms <= timing.p95_ms && timing.warm_min_ms <= timing.warm_median_ms);
  CHECK_WORKS(f);
  fixture_destroy(f);
}

static void buffers(void) {
  volup_buffer* buffer = POISON;
  REFUSED(volup_buffer_create(test_device, 0, 64, NULL), invalid, "buffer: got NULL");
  REFUSED_UNTOUCHED(buffer, volup_buffer_create(VOLUP_DEVICE_AUTO, 0, 64, &buffer), invalid,
                    "device_type: got 0");
  REFUSED_UNTOUCHED(buffer, volup_buffer_create(test_device, 0, SIZE_MAX / 2, &buffer),
                    VOLUP_STATUS_OUT_OF_MEMORY, "");
  REFUSED_UNTOUCHED(buffer, volup_buffer_create(test_device, 0, SIZE_MAX, &buffer),
                    VOLUP_STATUS_OUT_OF_MEMORY, "");
  ACCEPTED(volup_buffer_create(test_device, 0, 64, &buffer));
  char in[65] = "the bytes that a buffer takes and gives back, sixty-four of them";
  char out[65] = {0};
  CHECK((uintptr_t)volup_buffer_data(buffer) % 256 == 0);
  ACCEPTED(volup_buffer_copy_in(buffer, 0, in, 64));
  REFUSED(volup_buffer_copy_in(buffer, 1, in, 64), invalid, "64 bytes at offset 1");
  REFUSED(volup_buffer_copy_in(buffer, SIZE_MAX, in, 2), invalid, "need the end within 64");
  REFUSED(volup_buffer_copy_in(buffer, 0, NULL, 1), invalid, "host memory: got NULL");
  REFUSED(volup_buffer_copy_in(NULL, 0, in, 1), invalid, "buffer: got NULL");
  REFUSED_UNTOUCHED(out, volup_buffer_copy_out(buffer, 0, out, 65), invalid,
                    "65 bytes at offset 0");
  REFUSED_UNTOUCHED(out, volup_buffer_copy_out(buffer, 2, out, SIZE_MAX), invalid,
                    "need the end within 64");
  REFUSED(volup_buffer_copy_out(buffer, 0, NULL, 1), invalid, "host memory: got NULL");
  REFUSED_UNTOUCHED(out, volup_buffer_copy_out(NULL, 0, out, 1), invalid, "buffer: got NULL");
  ACCEPTED(volup_buffer_copy_in(buffer, 64, NULL, 0));
  ACCEPTED(volup_buffer_copy_out(buffer, 0, out, 64));
  CHECK(memcmp(in, out, 64) == 0);
  CHECK(volup_buffer_data(NULL) == NULL);
  volup_buffer_destroy(buffer);
  volup_buffer_destroy(NULL);
}

const test_case session_cases[] = {
    {"create_arguments", create_arguments},
    {"create_options", create_options},
    {"absent_device", absent_device},
    {"automatic_device", automatic_device},
    {"null_session", null_session},
    {"prepare_arguments", prepare_arguments},
    {"set_workspace", set_workspace},
    {"workspace_size_is_exact", workspace_size_is_exact},
    {"failing_allocator", failing_allocator},
    {"time_arguments", time_arguments},
    {"buffers", buffers},
    {NULL, NULL},
};
