/* SPDX-License-Identifier: Apache-2.0
 *
 * Models: epilogue constants, creation from arrays, loading, saving, reading back, output shape.
 */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

static void epilogue_init(void) {
  volup_epilogue e;
  memset(&e, 0x5a, sizeof(e));
  REFUSED(volup_epilogue_init(VOLUP_EPILOGUE_IDENTITY, NULL), VOLUP_STATUS_INVALID_ARGUMENT,
          "epilogue: got NULL");
  REFUSED_UNTOUCHED(e, volup_epilogue_init((volup_epilogue_kind)4, &e),
                    VOLUP_STATUS_INVALID_ARGUMENT, "got 4, need 0 to 3");
  REFUSED_UNTOUCHED(e, volup_epilogue_init((volup_epilogue_kind)INT_MAX, &e),
                    VOLUP_STATUS_INVALID_ARGUMENT, "epilogue kind");
  ACCEPTED(volup_epilogue_init(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, &e));
  CHECK(e.struct_size == sizeof(e) && e.kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  CHECK(e.shift == 3 && e.divisor == 6 && e.subtract == 0 && e.clamp_min == -1 && e.clamp_max == 1);
  ACCEPTED(volup_epilogue_init(VOLUP_EPILOGUE_ADD_HARDSWISH, &e));
  CHECK(e.shift == 3 && e.divisor == 6 && e.clamp_min == 0 && e.clamp_max == 6);
}

/* A description that is right: 2 -> 4 channels, kernel 2. */
enum { kWeights = 2 * 4 * 8 };
static float weights[kWeights];
static float biases[4];

typedef struct parts {
  volup_geometry geometry;
  volup_epilogue epilogue;
  volup_model_desc desc;
} parts;

static parts p;

static void fill(void) {
  p.geometry = make_geometry(2, 4, 2);
  p.epilogue = make_epilogue(VOLUP_EPILOGUE_ADD_HARDSWISH);
  memset(&p.desc, 0, sizeof(p.desc));
  p.desc.struct_size = sizeof(p.desc);
  p.desc.geometry = &p.geometry;
  p.desc.epilogue = &p.epilogue;
  p.desc.weight = weights;
  p.desc.weight_count = kWeights;
  p.desc.bias = biases;
  p.desc.bias_count = 4;
}

static void create_is_accepted(const volup_model_desc* desc) {
  volup_model* model = NULL;
  ACCEPTED(volup_model_create(desc, &model));
  volup_model_destroy(model);
}

#define CREATE_REFUSED(fragment)                                                                   \
  do {                                                                                             \
    volup_model* model_ = POISON;                                                                  \
    REFUSED_UNTOUCHED(model_, volup_model_create(&p.desc, &model_), VOLUP_STATUS_INVALID_ARGUMENT, \
                      fragment);                                                                   \
  } while (0)

/* One field of the good description changed: refused. */
#define CHANGED_REFUSED(change, fragment) \
  do {                                    \
    fill();                               \
    change;                               \
    CREATE_REFUSED(fragment);             \
  } while (0)

static void create_pointers(void) {
  fill();
  create_is_accepted(&p.desc);
  volup_model* model = POISON;
  REFUSED(volup_model_create(&p.desc, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "model: got NULL");
  REFUSED_UNTOUCHED(model, volup_model_create(NULL, &model), VOLUP_STATUS_INVALID_ARGUMENT,
                    "desc: got NULL");
  CHANGED_REFUSED(p.desc.geometry = NULL, "geometry: got NULL");
  CHANGED_REFUSED(p.desc.epilogue = NULL, "epilogue: got NULL");
  CHANGED_REFUSED(p.desc.weight = NULL, "weight: got NULL");
  CHANGED_REFUSED(p.desc.bias = NULL, "bias_count: got 4, need 0");
  fill();
  p.desc.bias = NULL;
  p.desc.bias_count = 0;
  create_is_accepted(&p.desc);
}

static void create_counts(void) {
  CHANGED_REFUSED(p.desc.weight_count = kWeights - 1, "weight_count: got 63, need 64");
  CHANGED_REFUSED(p.desc.weight_count = -1, "weight_count: got -1, need 64");
  CHANGED_REFUSED(p.desc.weight_count = INT64_MAX, "weight_count");
  CHANGED_REFUSED(p.desc.bias_count = 3, "bias_count: got 3, need 4");
  CHANGED_REFUSED(p.desc.bias_count = 0, "bias_count: got 0, need 4");
}

/* The same struct as a later version might have it. */
typedef struct newer_desc {
  volup_model_desc base;
  int64_t later;
} newer_desc;

static void create_struct_sizes(void) {
  CHANGED_REFUSED(p.desc.struct_size = 0, "desc.struct_size: got 0, need at least");
  CHANGED_REFUSED(p.desc.struct_size -= 1, "desc.struct_size");
  CHANGED_REFUSED(p.desc.struct_size = SIZE_MAX, "desc.struct_size");
  CHANGED_REFUSED(p.geometry.struct_size = 8, "geometry.struct_size: got 8");
  CHANGED_REFUSED(p.epilogue.struct_size = 0, "epilogue.struct_size: got 0");
  fill();
  newer_desc newer;
  memset(&newer, 0, sizeof(newer));
  newer.base = p.desc;
  newer.base.struct_size = sizeof(newer);
  create_is_accepted(&newer.base);
  newer.later = 1;
  volup_model* model = POISON;
  REFUSED_UNTOUCHED(model, volup_model_create(&newer.base, &model), VOLUP_STATUS_INVALID_ARGUMENT,
                    "fields set that version 1.0 does not know");
}

static void create_geometry(void) {
  CHANGED_REFUSED(p.geometry.groups = 0, "groups: got 0");
  CHANGED_REFUSED(p.geometry.groups = -2, "groups: got -2");
  CHANGED_REFUSED(p.geometry.groups = 4, "groups: got 4, need a divisor of in_channels 2");
  CHANGED_REFUSED(p.geometry.in_channels = 0, "in_channels: got 0");
  CHANGED_REFUSED(p.geometry.out_channels = -4, "out_channels: got -4");
  CHANGED_REFUSED(p.geometry.kernel[1] = 0, "kernel on H: got 0");
  CHANGED_REFUSED(p.geometry.stride[2] = 0, "stride on W: got 0");
  CHANGED_REFUSED(p.geometry.dilation[0] = 0, "dilation on D: got 0");
  CHANGED_REFUSED(p.geometry.padding_begin[0] = -1, "padding_begin on D: got -1");
  CHANGED_REFUSED(p.geometry.padding_end[2] = -3, "padding_end on W: got -3");
  CHANGED_REFUSED(p.geometry.output_padding[1] = -1, "output_padding on H: got -1");
  CHANGED_REFUSED(
      p.geometry.output_padding[1] = 1,
      "output_padding on H: got 1, need 0 <= output_padding < max(stride 1, dilation 1)");
  fill();
  p.geometry.dilation[0] = 3; /* below max(stride, dilation): valid */
  p.geometry.output_padding[0] = 2;
  create_is_accepted(&p.desc);
  p.geometry.output_padding[0] = 3;
  CREATE_REFUSED("max(stride 1, dilation 3)");
  /* Every fault is named, not only the first. */
  fill();
  p.geometry.groups = 0;
  p.geometry.padding_end[0] = -1;
  p.geometry.kernel[2] = -9;
  CREATE_REFUSED("groups: got 0");
  CHECK(strstr(volup_last_error(), "padding_end on D: got -1") != NULL);
  CHECK(strstr(volup_last_error(), "kernel on W: got -9") != NULL);
}

static void create_absurd_geometry(void) {
  CHANGED_REFUSED(p.geometry.kernel[0] = INT64_C(1) << 55, "kernel on D: got 36028797018963968");
  CHANGED_REFUSED(p.geometry.dilation[1] = 1879048192, "dilation on H: got 1879048192");
  CHANGED_REFUSED(p.geometry.stride[0] = INT64_MAX, "stride on D");
  CHANGED_REFUSED(p.geometry.padding_begin[0] = INT64_MAX, "padding_begin on D");
  CHANGED_REFUSED(p.geometry.in_channels = INT64_MAX, "in_channels");
  CHANGED_REFUSED(p.geometry.groups = INT64_MIN, "groups");
  /* Each factor is in range, their product is not. */
  fill();
  p.geometry.in_channels = p.geometry.out_channels = 1 << 24;
  p.geometry.kernel[0] = p.geometry.kernel[1] = p.geometry.kernel[2] = 1024;
  CREATE_REFUSED("pass 2^63");
}

static void create_epilogue(void) {
  CHANGED_REFUSED(p.epilogue.kind = -1, "epilogue kind: got -1");
  CHANGED_REFUSED(p.epilogue.kind = 99, "epilogue kind: got 99");
  CHANGED_REFUSED(p.epilogue.divisor = 0, "divisor");
  CHANGED_REFUSED(p.epilogue.divisor = NAN, "divisor");
  CHANGED_REFUSED(p.epilogue.shift = NAN, "shift");
  CHANGED_REFUSED(p.epilogue.clamp_min = 7, "clamp: got minimum 7 above maximum 6");
}

static void load_arguments(void) {
  volup_model* model = POISON;
  volup_load_options options;
  memset(&options, 0, sizeof(options));
  REFUSED(volup_model_load("model.h5", NULL, NULL), VOLUP_STATUS_INVALID_ARGUMENT,
          "model: got NULL");
  REFUSED_UNTOUCHED(model, volup_model_load(NULL, NULL, &model), VOLUP_STATUS_INVALID_ARGUMENT,
                    "path: got NULL");
  REFUSED_UNTOUCHED(model, volup_model_load("model.h5", &options, &model),
                    VOLUP_STATUS_INVALID_ARGUMENT, "options.struct_size: got 0");
  REFUSED(volup_model_load_memory("x", 1, NULL, NULL), VOLUP_STATUS_INVALID_ARGUMENT,
          "model: got NULL");
  REFUSED_UNTOUCHED(model, volup_model_load_memory(NULL, 1, NULL, &model),
                    VOLUP_STATUS_INVALID_ARGUMENT, "data: got NULL");
}

/* Refused whole, before the file is looked at. */
static void load_options(void) {
  volup_model* model = POISON;
  volup_load_options options;
  volup_geometry geometry;
  volup_epilogue epilogue;
  memset(&options, 0, sizeof(options));
  memset(&geometry, 0, sizeof(geometry));
  options.struct_size = sizeof(options);
#define OPTIONS_REFUSED(text)                                                 \
  REFUSED_UNTOUCHED(model, volup_model_load_memory("x", 1, &options, &model), \
                    VOLUP_STATUS_INVALID_ARGUMENT, text)
  options.flags = 4;
  OPTIONS_REFUSED("flags: got 4");
  options.flags = 0;
  options.geometry = &geometry;
  OPTIONS_REFUSED("geometry.struct_size: got 0");
  geometry.struct_size = sizeof(geometry);
  OPTIONS_REFUSED("stride");
  geometry.groups = 1;
  for (int i = 0; i < 3; ++i) geometry.stride[i] = geometry.dilation[i] = 1;
  geometry.padding_end[1] = -1;
  OPTIONS_REFUSED("padding");
  geometry.padding_end[1] = 0;
  geometry.in_channels = -3;
  OPTIONS_REFUSED("channels");
  geometry.in_channels = 0;
  memset(&epilogue, 0, sizeof(epilogue));
  options.epilogue = &epilogue;
  OPTIONS_REFUSED("epilogue.struct_size: got 0");
  ACCEPTED(volup_epilogue_init(VOLUP_EPILOGUE_ADD_HARDSWISH, &epilogue));
  epilogue.kind = 9;
  OPTIONS_REFUSED("epilogue kind: got 9");
  epilogue.kind = VOLUP_EPILOGUE_ADD_HARDSWISH;
  epilogue.divisor = 0;
  OPTIONS_REFUSED("divisor 0");
  epilogue.divisor = 6;
#undef OPTIONS_REFUSED
  /* Sound: the words are the file's. */
  REFUSED_UNTOUCHED(model, volup_model_load_memory("x", 1, &options, &model),
                    VOLUP_STATUS_UNREADABLE, "a text file");
  /* The first form of the struct: what lies after it is nobody's. */
  options.struct_size = offsetof(volup_load_options, submodule);
  options.flags = 0xffffffffu;
  REFUSED_UNTOUCHED(model, volup_model_load_memory("x", 1, &options, &model),
                    VOLUP_STATUS_UNREADABLE, "a text file");
  options.struct_size -= 1;
  REFUSED_UNTOUCHED(model, volup_model_load_memory("x", 1, &options, &model),
                    VOLUP_STATUS_INVALID_ARGUMENT, "options.struct_size: got 15");
}

static const char kHdf5Signature[] = "\x89HDF\r\n\x1a\n";

static void load_content(void) {
  volup_model* model = POISON;
  REFUSED_UNTOUCHED(model, volup_model_load("/nowhere/model.pt", NULL, &model),
                    VOLUP_STATUS_UNREADABLE, "/nowhere/model.pt: cannot be opened");
  REFUSED_UNTOUCHED(model, volup_model_load("/", NULL, &model), VOLUP_STATUS_UNREADABLE,
                    "a directory");
  REFUSED_UNTOUCHED(model, volup_model_load("/dev/null", NULL, &model), VOLUP_STATUS_UNREADABLE,
                    "no regular file");
  REFUSED_UNTOUCHED(model, volup_model_load_memory(NULL, 0, NULL, &model), VOLUP_STATUS_UNREADABLE,
                    "an empty file");
  REFUSED_UNTOUCHED(model, volup_model_load_memory("hello, world", 12, NULL, &model),
                    VOLUP_STATUS_UNREADABLE, "a text file");
  REFUSED_UNTOUCHED(model, volup_model_load_memory("\x80\x02}q", 4, NULL, &model),
                    VOLUP_STATUS_UNREADABLE, "legacy pickle");
  REFUSED_UNTOUCHED(model, volup_model_load_memory("\x80\x04}.", 4, NULL, &model),
                    VOLUP_STATUS_UNREADABLE, "a pickle");
  REFUSED_UNTOUCHED(model, volup_model_load_memory("\0\1\2\3", 4, NULL, &model),
                    VOLUP_STATUS_UNREADABLE, "unknown kind");
  volup_load_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.module_directory = "/nowhere";
  REFUSED_UNTOUCHED(model, volup_model_load_memory(kHdf5Signature, 8, &options, &model),
                    VOLUP_STATUS_UNAVAILABLE, "/nowhere/libvolup_hdf5.so");
  REFUSED_UNTOUCHED(model, volup_model_load_memory("PK\3\4", 4, &options, &model),
                    VOLUP_STATUS_UNAVAILABLE, "/nowhere/libvolup_torchscript.so");
}

static void save(void) {
  volup_model* model = make_model(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  volup_load_options options;
  memset(&options, 0, sizeof(options));
  REFUSED(volup_model_save(NULL, "model.h5", NULL), VOLUP_STATUS_INVALID_ARGUMENT,
          "model: got NULL");
  REFUSED(volup_model_save(model, NULL, NULL), VOLUP_STATUS_INVALID_ARGUMENT, "path: got NULL");
  REFUSED(volup_model_save(model, "model.h5", &options), VOLUP_STATUS_INVALID_ARGUMENT,
          "options.struct_size: got 0");
  options.struct_size = sizeof(options);
  options.module_directory = "/nowhere";
  REFUSED(volup_model_save(model, "/nowhere/model.h5", &options), VOLUP_STATUS_UNAVAILABLE,
          "/nowhere/libvolup_hdf5.so");
  volup_model_destroy(model);
}

#if VOLUP_TEST_HDF5
static void hdf5_files(void) {
  volup_model* loaded = POISON;
  REFUSED_UNTOUCHED(loaded, volup_model_load_memory(kHdf5Signature, 8, NULL, &loaded),
                    VOLUP_STATUS_UNREADABLE, "memory: ");
  volup_model* model = make_model(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  REFUSED(volup_model_save(model, "/nowhere/model.h5", NULL), VOLUP_STATUS_UNREADABLE,
          "/nowhere/model.h5");
  char path[] = "/tmp/volup_abi_XXXXXX";
  const int descriptor = mkstemp(path);
  CHECK(descriptor >= 0);
  close(descriptor);
  ACCEPTED(volup_model_save(model, path, NULL));
  ACCEPTED(volup_model_load(path, NULL, &loaded));
  /* A file that says its geometry and epilogue itself is held against the options. */
  volup_model* agreed = POISON;
  volup_load_options options;
  volup_geometry geometry;
  volup_epilogue epilogue;
  memset(&options, 0, sizeof(options));
  memset(&geometry, 0, sizeof(geometry));
  memset(&epilogue, 0, sizeof(epilogue));
  options.struct_size = sizeof(options);
  options.geometry = &geometry;
  options.epilogue = &epilogue;
  geometry.struct_size = sizeof(geometry);
  epilogue.struct_size = sizeof(epilogue);
  ACCEPTED(volup_model_geometry(model, &geometry));
  ACCEPTED(volup_model_epilogue(model, &epilogue));
  ACCEPTED(volup_model_load(path, &options, &agreed));
  volup_model_destroy(agreed);
  agreed = POISON;
  geometry.in_channels = geometry.out_channels = geometry.kernel[1] = 0;
  ACCEPTED(volup_model_load(path, &options, &agreed));
  volup_model_destroy(agreed);
  agreed = POISON;
  geometry.kernel[1] = 5;
  REFUSED_UNTOUCHED(agreed, volup_model_load(path, &options, &agreed), VOLUP_STATUS_UNSUPPORTED,
                    "as the options say");
  geometry.kernel[1] = 0;
  ACCEPTED(volup_epilogue_init(VOLUP_EPILOGUE_ADD_HARDSWISH, &epilogue));
  REFUSED_UNTOUCHED(agreed, volup_model_load(path, &options, &agreed), VOLUP_STATUS_UNSUPPORTED,
                    "need add_hardswish as the options say");
  /* Truncated: the answer is words, and the file on disk stays what it is. */
  CHECK(truncate(path, 600) == 0);
  volup_model* truncated = POISON;
  REFUSED_UNTOUCHED(truncated, volup_model_load(path, NULL, &truncated), VOLUP_STATUS_UNREADABLE,
                    path);
  const float* weight = NULL;
  const float* bias = NULL;
  const float* loaded_weight = NULL;
  const float* loaded_bias = NULL;
  ACCEPTED(volup_model_weights(model, &weight, &bias));
  ACCEPTED(volup_model_weights(loaded, &loaded_weight, &loaded_bias));
  CHECK(memcmp(weight, loaded_weight, 3 * 4 * 18 * sizeof(float)) == 0);
  CHECK(memcmp(bias, loaded_bias, 4 * sizeof(float)) == 0);
  unlink(path);
  volup_model_destroy(loaded);
  volup_model_destroy(model);
}
#endif

static void reading_back(void) {
  volup_model* model = make_model(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  volup_geometry g;
  volup_epilogue e;
  memset(&g, 0x5a, sizeof(g));
  memset(&e, 0x5a, sizeof(e));
  const float* pointer = POISON;
  const char* json = POISON;
  const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;
  g.struct_size = sizeof(g) - 8;
  e.struct_size = 0;
  REFUSED_UNTOUCHED(g, volup_model_geometry(model, &g), invalid, "geometry.struct_size: got");
  REFUSED_UNTOUCHED(e, volup_model_epilogue(model, &e), invalid, "epilogue.struct_size: got 0");
  g.struct_size = sizeof(g);
  e.struct_size = sizeof(e);
  REFUSED_UNTOUCHED(g, volup_model_geometry(NULL, &g), invalid, "model: got NULL");
  REFUSED_UNTOUCHED(e, volup_model_epilogue(NULL, &e), invalid, "model: got NULL");
  REFUSED(volup_model_geometry(model, NULL), invalid, "geometry: got NULL");
  REFUSED(volup_model_epilogue(model, NULL), invalid, "epilogue: got NULL");
  REFUSED_UNTOUCHED(pointer, volup_model_weights(model, &pointer, NULL), invalid, "bias: got NULL");
  REFUSED_UNTOUCHED(pointer, volup_model_weights(model, NULL, &pointer), invalid,
                    "weight: got NULL");
  REFUSED(volup_model_weights(NULL, &pointer, &pointer), invalid, "model: got NULL");
  REFUSED_UNTOUCHED(json, volup_model_describe(NULL, &json), invalid, "model: got NULL");
  REFUSED(volup_model_describe(model, NULL), invalid, "json: got NULL");
  ACCEPTED(volup_model_geometry(model, &g));
  ACCEPTED(volup_model_epilogue(model, &e));
  CHECK(g.in_channels == 3 && g.out_channels == 4 && g.kernel[0] == 2 && g.padding_end[2] == 1);
  CHECK(e.kind == VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  ACCEPTED(volup_model_describe(model, &json));
  CHECK(json[0] == '{' && strstr(json, "softmax_sigmoid") != NULL);
  volup_model_destroy(model);
  volup_model_destroy(NULL);
}

static void output_shape(void) {
  volup_model* model = make_model(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;
  int64_t in[5] = {2, 3, 2, 3, 4};
  int64_t out[5] = {-7, -7, -7, -7, -7};
  REFUSED_UNTOUCHED(out, volup_model_output_shape(NULL, in, out), invalid, "model: got NULL");
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, NULL, out), invalid, "input: got NULL");
  REFUSED(volup_model_output_shape(model, in, NULL), invalid, "output: got NULL");
  in[1] = 4;
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), invalid,
                    "input channels: got 4, need 3");
  in[1] = 3;
  in[0] = -1;
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), invalid, "batch: got -1");
  in[0] = 2;
  in[3] = 0;
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), invalid, "on H: got 0");
  in[3] = INT64_MAX;
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), invalid, "passes 2^63");
  in[3] = INT64_C(1) << 40;
  in[4] = INT64_C(1) << 40;
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), invalid, "2^63");
  in[3] = 3;
  in[4] = 4;
  in[0] = 0;
  ACCEPTED(volup_model_output_shape(model, in, out));
  CHECK(out[0] == 0 && out[1] == 1 && out[2] == 3 && out[3] == 6 && out[4] == 8);
  volup_model_destroy(model);
}

/* k2 s2 p2 on size 2: the output size is 0, and the words say how. */
static void output_size_formula(void) {
  fill();
  for (int axis = 0; axis < 3; ++axis) {
    p.geometry.stride[axis] = p.geometry.padding_begin[axis] = p.geometry.padding_end[axis] = 2;
  }
  volup_model* model = NULL;
  ACCEPTED(volup_model_create(&p.desc, &model));
  const int64_t in[5] = {1, 2, 2, 2, 2};
  int64_t out[5] = {-7, -7, -7, -7, -7};
  REFUSED_UNTOUCHED(out, volup_model_output_shape(model, in, out), VOLUP_STATUS_INVALID_ARGUMENT,
                    "(in 2 - 1) * stride 2 - padding_begin 2 - padding_end 2 + dilation 1 * "
                    "(kernel 2 - 1) + output_padding 0 + 1 = 0, need >= 1");
  volup_session* session = NULL;
  const volup_session_options options = make_options();
  ACCEPTED(volup_session_create(model, &options, &session));
  REFUSED(volup_session_prepare(session, in), VOLUP_STATUS_INVALID_ARGUMENT, "= 0, need >= 1");
  volup_session_destroy(session);
  volup_model_destroy(model);
}

const test_case model_cases[] = {
    {"epilogue_init", epilogue_init},
    {"create_pointers", create_pointers},
    {"create_counts", create_counts},
    {"create_struct_sizes", create_struct_sizes},
    {"create_geometry", create_geometry},
    {"create_absurd_geometry", create_absurd_geometry},
    {"create_epilogue", create_epilogue},
    {"load_arguments", load_arguments},
    {"load_options", load_options},
    {"load_content", load_content},
    {"save", save},
#if VOLUP_TEST_HDF5
    {"hdf5_files", hdf5_files},
#endif
    {"reading_back", reading_back},
    {"output_shape", output_shape},
    {"output_size_formula", output_size_formula},
    {NULL, NULL},
};
