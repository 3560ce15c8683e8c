/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads and the log: a session found busy, error texts of each thread's own, one model under many
 * sessions, the log sink.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

/* A caller's allocator that lets the test in while a call is inside the session. */
typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int inside;
  int open;
} gate;

static void* gate_allocate(void* context, size_t bytes) {
  gate* g = context;
  pthread_mutex_lock(&g->mutex);
  g->inside = 1;
  pthread_cond_broadcast(&g->changed);
  while (!g->open) pthread_cond_wait(&g->changed, &g->mutex);
  pthread_mutex_unlock(&g->mutex);
  void* memory = NULL;
  return posix_memalign(&memory, 256, bytes == 0 ? 256 : bytes) == 0 ? memory : NULL;
}

static void gate_free(void* context, void* memory, size_t bytes) {
  (void)context;
  (void)bytes;
  free(memory);
}

static void* time_in_thread(void* context) {
  fixture* f = context;
  volup_timing timing;
  memset(&timing, 0, sizeof(timing));
  timing.struct_size = sizeof(timing);
  ACCEPTED(volup_session_time(f->session, f->in_shape, 2, &timing));
  return NULL;
}

static void busy(void) {
  if (test_device != VOLUP_DEVICE_CPU) return; /* the gate's memory is the host's */
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  volup_session_destroy(f->session);
  gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
  volup_session_options options = make_options();
  options.allocator.allocate = gate_allocate;
  options.allocator.free = gate_free;
  options.allocator.context = &g;
  ACCEPTED(volup_session_create(f->model, &options, &f->session));
  pthread_t other;
  CHECK(pthread_create(&other, NULL, time_in_thread, f) == 0);
  pthread_mutex_lock(&g.mutex);
  while (!g.inside) pthread_cond_wait(&g.changed, &g.mutex);
  pthread_mutex_unlock(&g.mutex);

  const volup_status status = VOLUP_STATUS_BUSY;
  const char* words = "session: another thread is inside it";
  size_t bytes = 7;
  const char* json = POISON;
  volup_timing timing;
  memset(&timing, 0x5a, sizeof(timing));
  timing.struct_size = sizeof(timing);
  fixture_poison(f);
  REFUSED(volup_session_prepare(f->session, f->in_shape), status, words);
  REFUSED(volup_session_run(f->session, &f->x, &f->add, &f->out), status, words);
  REFUSED(volup_session_enqueue(f->session, &f->x, &f->add, &f->out, NULL), status, words);
  REFUSED(volup_session_set_workspace(f->session, NULL, 0), status, words);
  REFUSED_UNTOUCHED(bytes, volup_session_workspace_size(f->session, f->in_shape, &bytes), status,
                    words);
  REFUSED_UNTOUCHED(json, volup_session_describe(f->session, f->in_shape, &json), status, words);
  REFUSED_UNTOUCHED(timing, volup_session_time(f->session, f->in_shape, 2, &timing), status, words);
  CHECK_UNTOUCHED(f);

  pthread_mutex_lock(&g.mutex);
  g.open = 1;
  pthread_cond_broadcast(&g.changed);
  pthread_mutex_unlock(&g.mutex);
  pthread_join(other, NULL);
  CHECK_WORKS(f);
  fixture_destroy(f);
}

static void* fail_in_thread(void* context) {
  (void)context;
  CHECK(volup_last_error()[0] == '\0'); /* another thread's words are not this one's */
  REFUSED(volup_session_prepare(NULL, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "session: got NULL");
  return NULL;
}

static void last_error_is_per_thread(void) {
  REFUSED(volup_model_describe(NULL, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "model: got NULL");
  pthread_t other;
  CHECK(pthread_create(&other, NULL, fail_in_thread, NULL) == 0);
  pthread_join(other, NULL);
  CHECK(strstr(volup_last_error(), "model: got NULL") != NULL);
  /* A call that succeeds leaves the words of the last that failed. */
  int32_t count = 0;
  ACCEPTED(volup_device_count(VOLUP_DEVICE_CPU, &count));
  CHECK(strstr(volup_last_error(), "model: got NULL") != NULL);
}

static void* run_in_thread(void* context) {
  fixture* f = context;
  for (int i = 0; i < 50; ++i) {
    CHECK_WORKS(f);
    REFUSED(volup_session_run(f->session, NULL, NULL, &f->out), VOLUP_STATUS_INVALID_ARGUMENT,
            "x: got NULL");
  }
  return NULL;
}

/* Sessions of one model, each in its own thread, failing and succeeding in turn. */
static void one_model_many_sessions(void) {
  enum { kThreads = 4 };
  fixture* fixtures[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    fixtures[i] = fixture_create(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
    volup_session_destroy(fixtures[i]->session);
    const volup_session_options options = make_options();
    ACCEPTED(volup_session_create(fixtures[0]->model, &options, &fixtures[i]->session));
  }
  for (int i = 0; i < kThreads; ++i) {
    CHECK(pthread_create(&threads[i], NULL, run_in_thread, fixtures[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = kThreads - 1; i >= 0; --i) fixture_destroy(fixtures[i]);
}

typedef struct lines {
  int errors;
  int infos;
  int others;
  char last_error[512];
  char last_info[512];
} lines;

static void take_line(void* context, volup_log_level level, const char* line) {
  lines* taken = context;
  if (level == VOLUP_LOG_ERROR) {
    ++taken->errors;
    snprintf(taken->last_error, sizeof(taken->last_error), "%s", line);
  } else if (level == VOLUP_LOG_INFO) {
    ++taken->infos;
    snprintf(taken->last_info, sizeof(taken->last_info), "%s", line);
  } else {
    ++taken->others;
  }
}

static void log_sink(void) {
  fixture* f = fixture_create(VOLUP_EPILOGUE_ADD_HARDSWISH);
  lines taken;
  memset(&taken, 0, sizeof(taken));
  REFUSED(volup_set_log(take_line, &taken, (volup_log_level)0), VOLUP_STATUS_INVALID_ARGUMENT,
          "level: got 0");
  REFUSED(volup_set_log(take_line, &taken, (volup_log_level)4), VOLUP_STATUS_INVALID_ARGUMENT,
          "level: got 4, need 1 to 3");
  CHECK(taken.errors == 0);

  ACCEPTED(volup_set_log(take_line, &taken, VOLUP_LOG_ERROR));
  REFUSED(volup_session_prepare(f->session, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "input");
  ACCEPTED(volup_session_prepare(f->session, f->in_shape));
  CHECK(taken.errors == 1 && taken.infos == 0 && taken.others == 0);
  CHECK(strcmp(taken.last_error, volup_last_error()) == 0);

  /* One line a prepare: the problem, the device, the kernel. */
  ACCEPTED(volup_set_log(take_line, &taken, VOLUP_LOG_INFO));
  int64_t shape[5];
  memcpy(shape, f->in_shape, sizeof(shape));
  shape[0] = 3;
  ACCEPTED(volup_session_prepare(f->session, shape));
  CHECK(taken.infos == 1 && taken.others == 0);
  CHECK(strstr(taken.last_info, "C n3 ci3 co4 i2x3x4 k2x3x3 s1x2x2 p0x1x0:1 op0x1x0 fp32") != NULL);
  CHECK(strstr(taken.last_info, test_device == VOLUP_DEVICE_CPU ? "cpu/" : "cuda/") != NULL);
  ACCEPTED(volup_session_prepare(f->session, shape)); /* known already: no line */
  CHECK(taken.infos == 1);

  ACCEPTED(volup_set_log(NULL, NULL, VOLUP_LOG_DEBUG));
  REFUSED(volup_session_prepare(f->session, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "input");
  CHECK(taken.errors == 1);
  CHECK_WORKS(f);
  fixture_destroy(f);
}

const test_case thread_cases[] = {
    {"busy", busy},
    {"last_error_is_per_thread", last_error_is_per_thread},
    {"one_model_many_sessions", one_model_many_sessions},
    {"log_sink", log_sink},
    {NULL, NULL},
};
