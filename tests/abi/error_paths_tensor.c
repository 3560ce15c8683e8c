/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors given to run and enqueue: every way in which one can be wrong is answered before anything
 * is computed, out stays as it was, and the next good run gives the right numbers. Also what may
 * look wrong and is not: views, strides of axes of one element, empty batches.
 */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;

/* Both ways in. The tensors of enqueue are on the session's device; on a CUDA session the fixture's
 * host tensors are wrong there for another reason, so enqueue is tested with them on the CPU. */
typedef volup_status (*entry)(fixture* f, const volup_tensor* x, const volup_tensor* add,
                              const volup_tensor* out);

static volup_status enter_run(fixture* f, const volup_tensor* x, const volup_tensor* add,
                              const volup_tensor* out) {
  return volup_session_run(f->session, x, add, out);
}

static volup_status enter_enqueue(fixture* f, const volup_tensor* x, const volup_tensor* add,
                                  const volup_tensor* out) {
  return volup_session_enqueue(f->session, x, add, out, NULL);
}

static const entry entries[] = {enter_run, enter_enqueue};

static int entry_count(void) { return test_device == VOLUP_DEVICE_CPU ? 2 : 1; }

/* A prepared fixture of the block that takes add, and tensors to change. */
static fixture* f;
static volup_tensor x, add, out;

static void reset(void) {
  fixture_poison(f);
  x = f->x;
  add = f->add;
  out = f->out;
}

static void begin(volup_epilogue_kind kind) {
  f = fixture_create(kind);
  ACCEPTED(volup_session_prepare(f->session, f->in_shape));
  reset();
}

/* After the change, both entries refuse the three tensors; then all is well again. */
#define TENSORS_REFUSED(change, fragment)                         \
  do {                                                            \
    for (int i_ = 0; i_ < entry_count(); ++i_) {                  \
      reset();                                                    \
      change;                                                     \
      REFUSED(entries[i_](f, &x, &add, &out), invalid, fragment); \
      CHECK_UNTOUCHED(f);                                         \
    }                                                             \
    CHECK_WORKS(f);                                               \
  } while (0)

static void null_pointers(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  for (int i = 0; i < entry_count(); ++i) {
    REFUSED(entries[i](f, NULL, &add, &out), invalid, "x: got NULL");
    REFUSED(entries[i](f, &x, NULL, &out), invalid, "add: got NULL");
    REFUSED(entries[i](f, &x, &add, NULL), invalid, "out: got NULL");
    CHECK_UNTOUCHED(f);
  }
  TENSORS_REFUSED(x.data = NULL, "x data: got NULL");
  TENSORS_REFUSED(add.data = NULL, "add data: got NULL");
  TENSORS_REFUSED(out.data = NULL, "out data: got NULL");
  fixture_destroy(f);
}

static void unwanted_add(void) {
  begin(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  for (int i = 0; i < entry_count(); ++i) {
    REFUSED(entries[i](f, &x, &add, &out), invalid, "add: got a tensor, need NULL");
    CHECK_UNTOUCHED(f);
  }
  CHECK_WORKS(f);
  fixture_destroy(f);
}

typedef struct newer_tensor {
  volup_tensor base;
  int64_t later;
} newer_tensor;

static void struct_sizes(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  TENSORS_REFUSED(x.struct_size = 0, "x.struct_size: got 0");
  TENSORS_REFUSED(add.struct_size -= 8, "add.struct_size: got ");
  TENSORS_REFUSED(out.struct_size = 1, "out.struct_size: got 1");
  TENSORS_REFUSED(x.struct_size = SIZE_MAX, "x.struct_size: got ");
  for (int i = 0; i < entry_count(); ++i) {
    reset();
    newer_tensor newer;
    memset(&newer, 0, sizeof(newer));
    newer.base = x;
    newer.base.struct_size = sizeof(newer);
    ACCEPTED(entries[i](f, &newer.base, &add, &out));
    reset();
    newer.later = 1;
    REFUSED(entries[i](f, &newer.base, &add, &out), invalid,
            "x.struct_size: got 120 with fields set that version 1.0 does not know");
    CHECK_UNTOUCHED(f);
  }
  CHECK_WORKS(f);
  fixture_destroy(f);
}

static void ranks_and_shapes(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  TENSORS_REFUSED(x.rank = 4, "x rank: got 4, need 5");
  TENSORS_REFUSED(x.rank = 0, "x rank: got 0");
  TENSORS_REFUSED(add.rank = 6, "add rank: got 6");
  TENSORS_REFUSED(out.rank = -1, "out rank: got -1");
  TENSORS_REFUSED(x.shape[1] = 2, "input channels: got 2, need 3");
  TENSORS_REFUSED(x.shape[0] = -1, "batch: got -1");
  TENSORS_REFUSED(x.shape[4] = 0, "on W: got 0");
  TENSORS_REFUSED(x.shape[2] = INT64_MAX, "2^63");
  TENSORS_REFUSED(out.shape[1] = 1, "out shape: got [2, 1, 3, 6, 8], need [2, 4, 3, 6, 8]");
  TENSORS_REFUSED(out.shape[0] = 1, "out shape: got [1, ");
  TENSORS_REFUSED(add.shape[3] = 5, "add shape: got [2, 4, 3, 5, 8]");
  TENSORS_REFUSED(add.shape[0] = INT64_MIN, "add shape: got [-9223372036854775808");
  fixture_destroy(f);
}

static void dtypes_and_devices(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  TENSORS_REFUSED(x.dtype = VOLUP_DTYPE_FP16, "x dtype: got 1, need 0 (fp32)");
  TENSORS_REFUSED(add.dtype = VOLUP_DTYPE_BF16, "add dtype: got 2");
  TENSORS_REFUSED(out.dtype = -1, "out dtype: got -1");
  TENSORS_REFUSED(x.device_type = VOLUP_DEVICE_CUDA, "x device: got type 2");
  TENSORS_REFUSED(add.device_type = VOLUP_DEVICE_AUTO, "add device: got type 0");
  TENSORS_REFUSED(out.device_type = 77, "out device: got type 77");
  if (test_device == VOLUP_DEVICE_CUDA) {
    REFUSED(volup_session_enqueue(f->session, &f->x, &f->add, &f->out, NULL), invalid,
            "x device: got type 1");
  }
  fixture_destroy(f);
}

static void set_dense(volup_tensor* tensor) {
  int64_t stride = 1;
  for (int axis = 4; axis >= 0; --axis) {
    tensor->strides[axis] = stride;
    stride *= tensor->shape[axis];
  }
}

static void strides(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  /* Channels last, as PyTorch has it. */
  TENSORS_REFUSED((set_dense(&x), x.strides[1] = 1, x.strides[4] = 3), "x strides: got [");
  TENSORS_REFUSED((set_dense(&out), out.strides[0] += 1), "out strides: got [");
  TENSORS_REFUSED((set_dense(&add), add.strides[4] = -1), "add strides: got [");
  TENSORS_REFUSED(x.strides[0] = 72, "x strides: got [72, 0, 0, 0, 0]");
  for (int i = 0; i < entry_count(); ++i) {
    reset();
    set_dense(&x);
    set_dense(&add);
    set_dense(&out);
    ACCEPTED(entries[i](f, &x, &add, &out));
  }
  CHECK_WORKS(f);
  fixture_destroy(f);
}

static void misaligned(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  TENSORS_REFUSED(x.data = (char*)x.data + 1, "x data: got an address ending in 1");
  TENSORS_REFUSED(add.data = (char*)add.data + 2, "add data: got an address ending in 2");
  TENSORS_REFUSED(out.data = (char*)out.data + 3,
                  "out data: got an address ending in 3, need a multiple of the element size 4");
  fixture_destroy(f);
}

static void overlap(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  const char* words = "out: got memory that overlaps an input";
  /* The inputs lie in out's own memory, so nothing is read past an end. */
  TENSORS_REFUSED(x.data = out.data, words);
  TENSORS_REFUSED(x.data = (float*)out.data + f->out_count - 1, words);
  TENSORS_REFUSED(x.data = (float*)out.data - f->in_count % kCanary - 1, words);
  TENSORS_REFUSED(add.data = out.data, words);
  TENSORS_REFUSED(add.data = (float*)out.data + 1, words);
  /* Neighbours do not overlap. */
  for (int i = 0; i < entry_count(); ++i) {
    reset();
    memcpy((float*)out.data + f->out_count, f->x_values, sizeof(float) * (size_t)f->in_count);
    x.data = (float*)out.data + f->out_count;
    ACCEPTED(entries[i](f, &x, &add, &out));
  }
  fixture_destroy(f);
}

static void enqueue_alone(void) {
  begin(VOLUP_EPILOGUE_ADD_HARDSWISH);
  x.shape[0] = add.shape[0] = out.shape[0] = 1; /* valid, not prepared */
  REFUSED(volup_session_enqueue(f->session, &x, &add, &out, NULL), VOLUP_STATUS_NOT_PREPARED,
          "[1, 3, 2, 3, 4], need volup_session_prepare");
  reset();
  if (test_device == VOLUP_DEVICE_CPU) {
    int stream = 0;
    REFUSED(volup_session_enqueue(f->session, &x, &add, &out, &stream), invalid,
            "stream: got a stream, need NULL");
  }
  CHECK_UNTOUCHED(f);
  CHECK_WORKS(f);
  fixture_destroy(f);
}

/* N = 0 with NULL data, prepared or not: success, and nothing is written. */
static void empty_batch(void) {
  static const volup_epilogue_kind kinds[] = {
      VOLUP_EPILOGUE_IDENTITY, VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
      VOLUP_EPILOGUE_ADD_HARDSWISH};
  for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
    begin(kinds[k]);
    x.shape[0] = add.shape[0] = out.shape[0] = 0;
    const volup_tensor* add_or_null = fixture_add(f) == NULL ? NULL : &add;
    ACCEPTED(volup_session_run(f->session, &x, add_or_null, &out));
    CHECK_UNTOUCHED(f);
    x.data = add.data = out.data = NULL;
    ACCEPTED(volup_session_run(f->session, &x, add_or_null, &out));
    ACCEPTED(volup_session_prepare(f->session, x.shape));
    x.device_type = add.device_type = out.device_type = test_device;
    ACCEPTED(volup_session_enqueue(f->session, &x, add_or_null, &out, NULL));
    size_t bytes = 7;
    ACCEPTED(volup_session_workspace_size(f->session, x.shape, &bytes));
    CHECK(bytes == 0);
    CHECK_WORKS(f);
    fixture_destroy(f);
  }
}

/* Elements of two bytes, as volup stores them: small integers, exact in both formats. */
static uint16_t half_of_integer(int32_t dtype, int value) {
  const float magnitude = (float)(value < 0 ? -value : value);
  uint32_t bits;
  memcpy(&bits, &magnitude, sizeof(bits));
  const uint32_t sign = value < 0 ? 0x8000u : 0;
  if (dtype == VOLUP_DTYPE_BF16) return (uint16_t)(sign | bits >> 16);
  return (uint16_t)(value == 0 ? 0 : sign | (((bits >> 23) - 112) << 10) | (bits >> 13 & 0x3ff));
}

/* Views that begin on an element and not on 16 bytes: the same bits as from an aligned address. */
static void views(void) {
  static const int32_t dtypes[] = {VOLUP_DTYPE_FP32, VOLUP_DTYPE_FP16, VOLUP_DTYPE_BF16};
  static const volup_epilogue_kind kinds[] = {
      VOLUP_EPILOGUE_IDENTITY, VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
      VOLUP_EPILOGUE_ADD_HARDSWISH};
  enum { kBytes = 4 * kMostElements + 64 };
  unsigned char* memory = NULL;
  memory = malloc(3 * (size_t)kBytes + 64);
  static unsigned char aligned[kBytes];
  if (memory == NULL) exit(1);
  unsigned char* base = memory + (64 - (uintptr_t)memory % 64);
  for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
    begin(kinds[k]);
    for (size_t d = 0; d < 3; ++d) {
      const size_t element = dtypes[d] == VOLUP_DTYPE_FP32 ? 4 : 2;
      volup_session_options options = make_options();
      options.io_dtype = dtypes[d];
      volup_session* session = NULL;
      ACCEPTED(volup_session_create(f->model, &options, &session));
      for (size_t offset = 0; offset < 16; offset += element) {
        reset();
        x.dtype = add.dtype = out.dtype = dtypes[d];
        x.data = base + offset;
        add.data = base + kBytes + offset;
        out.data = base + 2 * (size_t)kBytes + offset;
        memset(base, 0xff, 3 * (size_t)kBytes);
        for (int64_t i = 0; i < f->out_count; ++i) {
          const int x_value = (int)(i * 7 % 9) - 4;
          const int add_value = (int)(i * 5 % 7) - 3;
          if (dtypes[d] == VOLUP_DTYPE_FP32) {
            if (i < f->in_count) ((float*)x.data)[i] = (float)x_value / 3;
            ((float*)add.data)[i] = (float)add_value / 3;
          } else {
            if (i < f->in_count) ((uint16_t*)x.data)[i] = half_of_integer(dtypes[d], x_value);
            ((uint16_t*)add.data)[i] = half_of_integer(dtypes[d], add_value);
          }
        }
        ACCEPTED(volup_session_run(session, &x, fixture_add(f) == NULL ? NULL : &add, &out));
        if (offset == 0) memcpy(aligned, out.data, element * (size_t)f->out_count);
        if (memcmp(aligned, out.data, element * (size_t)f->out_count) != 0) {
          report_failure(__FILE__, __LINE__, "epilogue %d, dtype %d: other bits at offset %zu",
                         (int)kinds[k], (int)dtypes[d], offset);
        }
        const unsigned char* end = (unsigned char*)out.data + element * (size_t)f->out_count;
        CHECK(end[0] == 0xff && end[1] == 0xff && (offset == 0 || base[2 * kBytes] == 0xff));
      }
      volup_session_destroy(session);
    }
    fixture_destroy(f);
  }
  free(memory);
}

const test_case tensor_cases[] = {
    {"null_pointers", null_pointers},
    {"unwanted_add", unwanted_add},
    {"struct_sizes", struct_sizes},
    {"ranks_and_shapes", ranks_and_shapes},
    {"dtypes_and_devices", dtypes_and_devices},
    {"strides", strides},
    {"misaligned", misaligned},
    {"overlap", overlap},
    {"enqueue_alone", enqueue_alone},
    {"empty_batch", empty_batch},
    {"views", views},
    {NULL, NULL},
};
