/* SPDX-License-Identifier: Apache-2.0
 *
 * Random sequences of C calls: any handle or NULL, any enum, sizes from ordinary to absurd, structs
 * of any size. Every pointer is one that the ABI allows: the library must answer each call, never
 * crash, and say something whenever it refuses. What the numbers are is tested elsewhere.
 *
 *   abi_call_fuzz SEED SECONDS
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "volup/volup.h"

static uint64_t state;
static uint64_t next(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static int below(int limit) { return (int)(next() % (uint64_t)limit); }
static int chance(int percent) { return below(100) < percent; }

/* Mostly an ordinary size; sometimes zero, negative or absurd. */
static int64_t any_size(int64_t ordinary) {
  static const int64_t odd[] = {0,
                                -1,
                                7,
                                1024,
                                INT64_C(1879048192),
                                INT64_C(1) << 31,
                                INT64_C(1) << 40,
                                INT64_C(1) << 55,
                                INT64_MAX,
                                INT64_MIN};
  return chance(97) ? ordinary : odd[below((int)(sizeof(odd) / sizeof(odd[0])))];
}

static int32_t any_enum(int32_t count) { return chance(92) ? below(count) : (int32_t)next(); }

static size_t any_struct_size(size_t right) {
  return chance(95) ? right : (size_t)below((int)right + 64);
}

/* Structs are given from here, with room behind for a struct_size that claims more. */
typedef struct roomy {
  union {
    volup_geometry geometry;
    volup_epilogue epilogue;
    volup_model_desc desc;
    volup_session_options options;
    volup_tensor tensor;
    volup_timing timing;
    volup_problem problem;
    volup_load_options load;
  } as;
  unsigned char tail[64];
} roomy;

enum { kModels = 4, kSessions = 4, kBuffers = 4, kArena = 1 << 16, kMostBuffer = 1 << 12 };
static volup_model* models[kModels];
static volup_session* sessions[kSessions];
static volup_model* session_models[kSessions]; /* not owned: another model may be there by now */
static int32_t session_io[kSessions];
static volup_buffer* buffers[kBuffers];
static float arena[3 * kArena]; /* x, add, out: each a part */
static float weights[kArena];
static uint64_t calls, refusals, runs;
static int64_t step;
static uint64_t seed;

static void check(volup_status status) {
  ++calls;
  if (status == VOLUP_STATUS_OK) return;
  ++refusals;
  if (status == VOLUP_STATUS_INTERNAL || volup_last_error()[0] == '\0' ||
      strcmp(volup_status_name(status), "unknown") == 0) {
    fprintf(stderr,
            "FAILED at step %" PRId64 ": status %d, words '%s'\n  rerun: abi_call_fuzz %" PRIu64
            " 60\n",
            step, (int)status, volup_last_error(), seed);
    exit(1);
  }
}

static volup_model* any_model(void) { return chance(97) ? models[below(kModels)] : NULL; }
static volup_session* any_session(void) { return chance(97) ? sessions[below(kSessions)] : NULL; }
static volup_buffer* any_buffer(void) { return chance(97) ? buffers[below(kBuffers)] : NULL; }

static void any_geometry(roomy* out) {
  memset(out, 0, sizeof(*out));
  volup_geometry* g = &out->as.geometry;
  g->struct_size = any_struct_size(sizeof(*g));
  const int64_t groups = 1 + below(3);
  g->groups = any_size(groups);
  g->in_channels = any_size(groups * (1 + below(4)));
  g->out_channels = any_size(groups * (1 + below(4)));
  for (int axis = 0; axis < 3; ++axis) {
    g->kernel[axis] = any_size(1 + below(4));
    g->stride[axis] = any_size(1 + below(3));
    g->padding_begin[axis] = any_size(below(3));
    g->padding_end[axis] = any_size(below(3));
    g->output_padding[axis] = any_size(below(2));
    g->dilation[axis] = any_size(1 + below(2));
  }
  if (chance(2)) out->tail[below(64)] = 1;
}

/* A shape of any kind; often one that the model takes. */
static void any_shape(const volup_model* model, int64_t shape[5]) {
  volup_geometry g;
  memset(&g, 0, sizeof(g));
  g.struct_size = sizeof(g);
  if (model != NULL) check(volup_model_geometry(model, &g));
  shape[0] = any_size(below(4));
  shape[1] = any_size(g.in_channels);
  for (int axis = 2; axis < 5; ++axis) shape[axis] = any_size(1 + below(5));
}

/* Elements of the shape, or -1 where they pass the arena's part. */
static int64_t small_count(const int64_t shape[5]) {
  int64_t count = 1;
  for (int axis = 0; axis < 5; ++axis) {
    if (shape[axis] < 0 || shape[axis] > kArena) return -1;
    count *= shape[axis];
    if (count > kArena) return -1;
  }
  return count;
}

/* A tensor over a part of the arena if its elements lie within it, else without data. */
static void any_tensor(const int64_t shape[5], int part, int32_t io, roomy* out) {
  memset(out, 0, sizeof(*out));
  volup_tensor* t = &out->as.tensor;
  t->struct_size = chance(98) ? sizeof(*t) : any_struct_size(sizeof(*t));
  for (int axis = 0; axis < 5; ++axis) t->shape[axis] = chance(99) ? shape[axis] : any_size(2);
  const int64_t count = small_count(t->shape);
  if (count >= 0 && chance(98)) {
    t->data = (char*)(arena + part * kArena) + (chance(95) || count == kArena ? 0 : below(4));
  }
  t->dtype = chance(97) ? io : any_enum(3);
  t->device_type = chance(97) ? VOLUP_DEVICE_CPU : any_enum(3);
  t->device_index = chance(97) ? 0 : (int32_t)next();
  t->rank = chance(97) ? 5 : (int32_t)next();
  if (chance(3)) t->strides[below(5)] = any_size(3);
}

static void create_model(void) {
  roomy geometry, epilogue, desc;
  any_geometry(&geometry);
  memset(&epilogue, 0, sizeof(epilogue));
  memset(&desc, 0, sizeof(desc));
  const int32_t kind = any_enum(4);
  const volup_status status = volup_epilogue_init((volup_epilogue_kind)kind, &epilogue.as.epilogue);
  check(status);
  if (chance(5)) epilogue.as.epilogue.struct_size = any_struct_size(sizeof(volup_epilogue));
  if (chance(5)) epilogue.as.epilogue.divisor = 0;
  const volup_geometry* g = &geometry.as.geometry;
  volup_model_desc* d = &desc.as.desc;
  d->struct_size = any_struct_size(sizeof(*d));
  d->geometry = chance(98) ? g : NULL;
  d->epilogue = chance(98) ? &epilogue.as.epilogue : NULL;
  d->weight = chance(98) ? weights : NULL;
  const int64_t factors[5] = {g->in_channels, g->groups <= 0 ? 0 : g->out_channels / g->groups,
                              g->kernel[0], g->kernel[1], g->kernel[2]};
  d->weight_count = small_count(factors);
  if (chance(2)) d->weight_count = below(kArena);
  if (g->out_channels >= 0 && g->out_channels <= kArena && chance(70)) {
    d->bias = weights;
    d->bias_count = chance(98) ? g->out_channels : below(10);
  }
  const int at = below(kModels);
  volup_model* model = NULL;
  check(volup_model_create(chance(99) ? d : NULL, chance(99) ? &model : NULL));
  if (model == NULL) return;
  volup_model_destroy(models[at]);
  models[at] = model;
}

static void create_session(void) {
  roomy options;
  memset(&options, 0, sizeof(options));
  volup_session_options* o = &options.as.options;
  o->struct_size = any_struct_size(sizeof(*o));
  o->device_type = chance(90) ? VOLUP_DEVICE_CPU : any_enum(3);
  o->device_index = chance(95) ? 0 : (int32_t)next();
  o->precision = chance(70) ? VOLUP_PRECISION_FP32 : any_enum(4);
  o->io_dtype = chance(80) ? VOLUP_DTYPE_FP32 : any_enum(3);
  o->threads = chance(97) ? 1 + below(2) : -(int32_t)(next() % 100);
  if (chance(20)) o->workspace_limit = (size_t)below(4096);
  if (chance(10)) o->kernel = chance(50) ? "cpu/reference" : "no/such";
  const int at = below(kSessions);
  volup_session* session = NULL;
  volup_model* model = any_model();
  const int with_options = chance(97);
  check(volup_session_create(model, with_options ? o : NULL, chance(99) ? &session : NULL));
  if (session == NULL) return;
  volup_session_destroy(sessions[at]);
  sessions[at] = session;
  session_models[at] = model;
  session_io[at] = with_options ? o->io_dtype : VOLUP_DTYPE_FP32;
}

static int is_live(const volup_model* model) {
  for (int i = 0; i < kModels; ++i) {
    if (models[i] == model) return 1;
  }
  return 0;
}

static void compute(void) {
  const int at = below(kSessions);
  volup_session* session = chance(97) ? sessions[at] : NULL;
  const int fits = is_live(session_models[at]) && chance(95);
  const volup_model* model = fits ? session_models[at] : any_model();
  int64_t in[5];
  int64_t out[5] = {1, 1, 1, 1, 1};
  any_shape(model, in);
  check(volup_model_output_shape(model, in, out));
  roomy epilogue;
  memset(&epilogue, 0, sizeof(epilogue));
  epilogue.as.epilogue.struct_size = sizeof(volup_epilogue);
  check(volup_model_epilogue(model, &epilogue.as.epilogue));
  const int takes_add = epilogue.as.epilogue.kind == VOLUP_EPILOGUE_ADD_HARDSWISH;
  roomy x, add, y;
  any_tensor(in, 0, session_io[at], &x);
  any_tensor(out, 1, session_io[at], &add);
  any_tensor(out, 2, session_io[at], &y);
  const volup_tensor* add_or_null = takes_add == chance(98) ? &add.as.tensor : NULL;
  volup_tensor* y_or_x = chance(98) ? &y.as.tensor : &x.as.tensor;
  const int what = below(3);
  if (what != 1) check(volup_session_prepare(session, in));
  if (what == 0) return;
  const volup_status status = what == 1
                                  ? volup_session_run(session, &x.as.tensor, add_or_null, y_or_x)
                                  : volup_session_enqueue(session, &x.as.tensor, add_or_null,
                                                          y_or_x, chance(98) ? NULL : (void*)arena);
  check(status);
  if (status == VOLUP_STATUS_OK) ++runs;
}

static void ask_session(void) {
  volup_session* session = any_session();
  int64_t shape[5];
  any_shape(any_model(), shape);
  const int64_t* input = chance(98) ? shape : NULL;
  size_t bytes = 0;
  const char* json = NULL;
  int32_t type = 0;
  roomy timing;
  memset(&timing, 0, sizeof(timing));
  timing.as.timing.struct_size = any_struct_size(sizeof(volup_timing));
  switch (below(5)) {
    case 0:
      check(volup_session_workspace_size(session, input, chance(98) ? &bytes : NULL));
      break;
    case 1:
      check(volup_session_describe(session, input, chance(98) ? &json : NULL));
      break;
    case 2:
      check(volup_session_device(session, chance(50) ? &type : NULL, NULL));
      break;
    case 3:
      check(volup_session_set_workspace(session, chance(50) ? NULL : (char*)arena + 1,
                                        (size_t)below(2)));
      break;
    default: /* timing fills memory of the sizes asked for: only small ones, and seldom */
      if (small_count(shape) > 64 || !chance(2)) return;
      check(volup_session_time(session, shape, chance(95) ? 1 : -1, &timing.as.timing));
  }
}

static void ask_model(void) {
  const volup_model* model = any_model();
  roomy geometry, epilogue;
  any_geometry(&geometry);
  memset(&epilogue, 0, sizeof(epilogue));
  epilogue.as.epilogue.struct_size = any_struct_size(sizeof(volup_epilogue));
  const float* weight = NULL;
  const float* bias = NULL;
  const char* json = NULL;
  switch (below(4)) {
    case 0:
      check(volup_model_geometry(model, chance(98) ? &geometry.as.geometry : NULL));
      break;
    case 1:
      check(volup_model_epilogue(model, chance(98) ? &epilogue.as.epilogue : NULL));
      break;
    case 2:
      check(volup_model_weights(model, chance(98) ? &weight : NULL, &bias));
      break;
    default:
      check(volup_model_describe(model, chance(98) ? &json : NULL));
  }
}

static void use_buffer(void) {
  if (chance(10)) {
    const int at = below(kBuffers);
    volup_buffer* buffer = NULL;
    const size_t bytes = chance(95) ? (size_t)below(kMostBuffer) : SIZE_MAX - (size_t)below(300);
    check(volup_buffer_create(chance(95) ? VOLUP_DEVICE_CPU : any_enum(3), 0, bytes, &buffer));
    if (buffer == NULL) return;
    volup_buffer_destroy(buffers[at]);
    buffers[at] = buffer;
    return;
  }
  volup_buffer* buffer = any_buffer();
  /* No buffer is larger than the arena, so what a copy may take is there on this side too. */
  const size_t offset = chance(90) ? (size_t)below(kMostBuffer) : (size_t)next();
  const size_t bytes = chance(90) ? (size_t)below(kMostBuffer) : (size_t)next();
  if (chance(50)) {
    check(volup_buffer_copy_in(buffer, offset, chance(98) ? arena : NULL, bytes));
  } else {
    check(volup_buffer_copy_out(buffer, offset, chance(98) ? arena : NULL, bytes));
  }
}

/* Words of the problem string's alphabet, put together at random. */
static void problem_string(void) {
  static const char* const words[] = {
      "A",    "B",      "C",           "I",    "n2",      "ci4",
      "co4",  "i3x3x3", "k3",          "s2",   "p1",      "op1",
      "d1",   "g2",     "fp32",        "tf32", "io=bf16", "fp16",
      "p0:1", "k1x3x3", "io=",         "n-1",  "k",       "i9999999999x1x1",
      "g0",   "op9",    "d2147483648", "x",    "  ",      "n99999999999999999999"};
  char text[512] = "";
  for (int i = below(14); i > 0; --i) {
    strcat(text, words[below((int)(sizeof(words) / sizeof(words[0])))]);
    strcat(text, chance(97) ? " " : "\t");
  }
  roomy geometry, problem;
  any_geometry(&geometry);
  memset(&problem, 0, sizeof(problem));
  volup_problem* p = &problem.as.problem;
  p->struct_size = any_struct_size(sizeof(*p));
  p->geometry = chance(98) ? &geometry.as.geometry : NULL;
  const char* good = "C n1 ci4 co4 i3x3x3 k3 s2 p1 op1";
  check(volup_problem_parse(chance(30) ? good : chance(98) ? text : NULL, p));
  char printed[256];
  check(volup_problem_print(p, printed, chance(90) ? sizeof(printed) : (size_t)below(40)));
}

static void load_bytes(void) {
  static const char* const starts[] = {"", "PK\3\4", "\x89HDF\r\n\x1a\n", "\x80\x02", "text"};
  char bytes[256];
  const size_t size = (size_t)below((int)sizeof(bytes));
  for (size_t i = 0; i < size; ++i) bytes[i] = (char)next();
  const char* start = starts[below(5)];
  if (strlen(start) <= size) memcpy(bytes, start, strlen(start));
  volup_model* model = NULL;
  check(volup_model_load_memory(chance(98) ? bytes : NULL, size, NULL, &model));
  volup_model_destroy(model);
}

static void let_go(void) {
  const int at = below(kModels);
  switch (below(3)) {
    case 0:
      volup_model_destroy(models[at]);
      models[at] = NULL;
      break;
    case 1:
      volup_session_destroy(sessions[at]);
      sessions[at] = NULL;
      break;
    default:
      volup_buffer_destroy(buffers[at]);
      buffers[at] = NULL;
  }
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: abi_call_fuzz SEED SECONDS\n");
    return 2;
  }
  seed = state = strtoull(argv[1], NULL, 10);
  const long seconds = strtol(argv[2], NULL, 10);
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < kArena; ++i) weights[i] = (float)(below(17) - 8);
  for (int i = 0; i < 3 * kArena; ++i) arena[i] = (float)(below(17) - 8);
  for (step = 0; step < 200000; ++step) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - start.tv_sec >= seconds) break;
    const int what = below(100);
    if (what < 10) {
      create_model();
    } else if (what < 20) {
      create_session();
    } else if (what < 60) {
      compute();
    } else if (what < 72) {
      ask_session();
    } else if (what < 80) {
      ask_model();
    } else if (what < 88) {
      use_buffer();
    } else if (what < 94) {
      problem_string();
    } else if (what < 97) {
      load_bytes();
    } else {
      let_go();
    }
  }
  for (int i = 0; i < kSessions; ++i) volup_session_destroy(sessions[i]);
  for (int i = 0; i < kModels; ++i) volup_model_destroy(models[i]);
  for (int i = 0; i < kBuffers; ++i) volup_buffer_destroy(buffers[i]);
  printf("seed %" PRIu64 ": %" PRId64 " steps, %" PRIu64 " calls, %" PRIu64 " refused, %" PRIu64
         " runs\n",
         seed, step, calls, refusals, runs);
  /* Sequences that are always or never refused, or compute nothing, test little. */
  return refusals * 20 > calls && refusals * 20 < calls * 19 && runs * 100 > (uint64_t)step ? 0 : 1;
}
