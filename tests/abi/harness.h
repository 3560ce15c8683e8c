/* SPDX-License-Identifier: Apache-2.0
 *
 * What the error-path tests share: cases with names, a check for "this call is refused with this
 * status and these words, and touched nothing", and a small model on a session whose right numbers
 * are known. Not here: the cases.
 */
#ifndef VOLUP_TESTS_ABI_HARNESS_H_
#define VOLUP_TESTS_ABI_HARNESS_H_

#include <string.h>

#include "volup/volup.h"

typedef struct test_case {
  const char* name;
  void (*run)(void);
} test_case;

typedef struct test_room {
  const char* name;
  const test_case* cases; /* ends with a NULL name */
} test_room;

extern const test_case model_cases[];
extern const test_case problem_cases[];
extern const test_case session_cases[];
extern const test_case tensor_cases[];
extern const test_case thread_cases[];

/* Where the sessions of the tests are made: VOLUP_DEVICE_CPU or VOLUP_DEVICE_CUDA. */
extern int32_t test_device;

/* Counts and prints a failure with the line that reruns it. Callable from any thread. */
void report_failure(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
/* Runs the cases of a room, or the one named; the number of failed cases. */
int run_room(const test_room* room, const char* only);

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) report_failure(__FILE__, __LINE__, "%s is false", #condition); \
  } while (0)

/* The call succeeds. */
#define ACCEPTED(call) check_accepted(__FILE__, __LINE__, #call, (call))
/* The call fails with this status, and volup_last_error() is one line that has the fragment. */
#define REFUSED(call, status, fragment) \
  check_refused(__FILE__, __LINE__, #call, (call), (status), (fragment))
/* As REFUSED, and the bytes of the variable out are as they were. */
#define REFUSED_UNTOUCHED(out, call, status, fragment)                         \
  do {                                                                         \
    unsigned char before_[sizeof(out)];                                        \
    memcpy(before_, &(out), sizeof(out));                                      \
    REFUSED(call, status, fragment);                                           \
    if (memcmp(before_, &(out), sizeof(out)) != 0)                             \
      report_failure(__FILE__, __LINE__, "%s was touched by %s", #out, #call); \
  } while (0)

void check_accepted(const char* file, int line, const char* call, volup_status got);
void check_refused(const char* file, int line, const char* call, volup_status got,
                   volup_status want, const char* fragment);

/* A pointer that no call may follow or replace. */
#define POISON ((void*)(uintptr_t)0x5a5a5a50)

/* Every struct has its size set and all else zero, or the defaults that its name says. */
volup_geometry make_geometry(int64_t in_channels, int64_t out_channels, int64_t kernel);
volup_epilogue make_epilogue(volup_epilogue_kind kind);
volup_session_options make_options(void);
volup_tensor make_tensor(void* data, const int64_t shape[5]);

/* A model of the kind with small seeded weights: 3 -> 4 channels, kernel 2x3x3, stride 1x2x2,
 * padding 0:1 on W. Never NULL. */
volup_model* make_model(volup_epilogue_kind kind);

enum { kMostElements = 4096, kCanary = 64 };

/* A session of make_model(kind) on test_device with host tensors of the right shapes, and the right
 * answer in float64. */
typedef struct fixture {
  volup_epilogue_kind kind;
  volup_model* model;
  volup_session* session;
  int64_t in_shape[5];
  int64_t out_shape[5];
  int64_t in_count;
  int64_t out_count;
  float x_values[kMostElements];
  float add_values[kMostElements];
  float out_memory[kCanary + kMostElements + kCanary]; /* out_values is the middle */
  double expected[kMostElements];
  volup_tensor x;
  volup_tensor add;
  volup_tensor out;
} fixture;

fixture* fixture_create(volup_epilogue_kind kind);
void fixture_destroy(fixture* f);
float* fixture_out(fixture* f);
/* add where the kind takes one, else NULL. */
const volup_tensor* fixture_add(const fixture* f);
/* Fills out and what lies around it with NaNs of one pattern. */
void fixture_poison(fixture* f);
/* out and what lies around it are as fixture_poison left them. */
void fixture_check_untouched(const char* file, int line, const fixture* f);
/* Runs the fixture's own tensors and compares with the right answer; nothing around out changes. */
void fixture_check_works(const char* file, int line, fixture* f);
#define CHECK_UNTOUCHED(f) fixture_check_untouched(__FILE__, __LINE__, (f))
#define CHECK_WORKS(f) fixture_check_works(__FILE__, __LINE__, (f))

#endif /* VOLUP_TESTS_ABI_HARNESS_H_ */
