/* SPDX-License-Identifier: Apache-2.0
 *
 * The problem string, and the small functions: version, status names, device count.
 */
#include <locale.h>
#include <stdio.h>

#include "harness.h"

static const char kText[] = "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32";

static volup_problem make_problem(volup_geometry* geometry) {
  volup_problem problem;
  memset(&problem, 0, sizeof(problem));
  problem.struct_size = sizeof(problem);
  problem.geometry = geometry;
  return problem;
}

static void parse_arguments(void) {
  volup_geometry g = make_geometry(7, 7, 7);
  volup_problem problem = make_problem(&g);
  const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;
  REFUSED_UNTOUCHED(problem, volup_problem_parse(NULL, &problem), invalid, "text: got NULL");
  REFUSED(volup_problem_parse(kText, NULL), invalid, "problem: got NULL");
  problem.struct_size = 8;
  REFUSED_UNTOUCHED(problem, volup_problem_parse(kText, &problem), invalid,
                    "problem.struct_size: got 8");
  problem = make_problem(NULL);
  REFUSED_UNTOUCHED(problem, volup_problem_parse(kText, &problem), invalid,
                    "problem.geometry: got NULL");
  problem = make_problem(&g);
  g.struct_size = 0;
  REFUSED_UNTOUCHED(g, volup_problem_parse(kText, &problem), invalid,
                    "problem.geometry.struct_size: got 0");
}

static void parse_words(void) {
  static const struct {
    const char* text;
    const char* fragment;
  } rows[] = {
      {"", "need the epilogue's letter"},
      {"C n1 ci2 co2 i2x2x2", "need k, the kernel"},
      {"X n1 ci2 co2 i2x2x2 k3", "'X'"},
      {"C n1 ci2 co2 i2x2x2 k3x", "'k3x'"},
      {"C n1 ci2 co2 i2x2 k3", "'i2x2'"},
      {"C n1 ci2 co2 i2x2x2x2 k3", "'i2x2x2x2'"},
      {"C n1 ci2 co2 i2x2x2 k3 q1", "'q1'"},
      {"C n1.5 ci2 co2 i2x2x2 k3", "'n1.5'"},
      {"C n99999999999999999999 ci2 co2 i2x2x2 k3", "'n99999999999999999999'"},
      {"C n1 ci2 co2 i2x2x2 k3 io=fp64", "'io=fp64'"},
      {"C n1 ci2 co2 i2x2x2 k3 g0", "groups: got 0"},
      {"C n1 ci2 co2 i2x2x2 k3 p-1", "padding_begin on D: got -1"},
      {"C n1 ci2 co2 i2x2x2 k3 op1", "output_padding on D: got 1"},
      {"C n1 ci2 co2 i2x2x2 k3 d1879048192", "dilation on D: got 1879048192"},
      {"C n1 ci2 co2 i2x2x2 k36028797018963968", "kernel on D: got 36028797018963968"},
      {"C n1 ci2 co2 i2x2x2 k2 s2 p2", "= 0, need >= 1"},
      {"C n1 ci2 co2 i2x2x2 k3 fp16", "precision fp16: got I/O dtype fp32"},
  };
  volup_geometry g = make_geometry(7, 7, 7);
  volup_problem problem = make_problem(&g);
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    const volup_geometry before = g;
    REFUSED_UNTOUCHED(problem, volup_problem_parse(rows[i].text, &problem),
                      VOLUP_STATUS_INVALID_ARGUMENT, rows[i].fragment);
    CHECK(memcmp(&before, &g, sizeof(g)) == 0);
  }
}

static void print(void) {
  volup_geometry g = make_geometry(1, 1, 1);
  volup_problem problem = make_problem(&g);
  const volup_status invalid = VOLUP_STATUS_INVALID_ARGUMENT;
  char text[256];
  memset(text, 0x5a, sizeof(text));
  ACCEPTED(volup_problem_parse(kText, &problem));
  REFUSED(volup_problem_print(&problem, NULL, 256), invalid, "buffer: got NULL");
  REFUSED_UNTOUCHED(text, volup_problem_print(NULL, text, sizeof(text)), invalid,
                    "problem: got NULL");
  REFUSED_UNTOUCHED(text, volup_problem_print(&problem, text, sizeof(kText) - 1), invalid,
                    "buffer: got");
  REFUSED_UNTOUCHED(text, volup_problem_print(&problem, text, 0), invalid, "buffer: got 0");
  volup_problem wrong = problem;
  wrong.epilogue = 9;
  REFUSED_UNTOUCHED(text, volup_problem_print(&wrong, text, sizeof(text)), invalid,
                    "epilogue kind: got 9");
  wrong = problem;
  wrong.precision = -1;
  REFUSED_UNTOUCHED(text, volup_problem_print(&wrong, text, sizeof(text)), invalid,
                    "precision: got -1");
  wrong = problem;
  wrong.io_dtype = 3;
  REFUSED_UNTOUCHED(text, volup_problem_print(&wrong, text, sizeof(text)), invalid,
                    "io_dtype: got 3");
  wrong = problem;
  wrong.input[1] = 31;
  REFUSED_UNTOUCHED(text, volup_problem_print(&wrong, text, sizeof(text)), invalid,
                    "input channels: got 31, need 32");
  ACCEPTED(volup_problem_print(&problem, text, sizeof(kText)));
  CHECK(strcmp(text, kText) == 0);
}

/* Numbers are read and written alike where a comma is the decimal sign and a point groups digits.
 */
static void locale(void) {
  static const char* const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
  const char* set = NULL;
  for (size_t i = 0; set == NULL && i < sizeof(names) / sizeof(names[0]); ++i) {
    set = setlocale(LC_ALL, names[i]);
  }
  printf("  locale: %s\n", set == NULL ? "none with a decimal comma here, C" : set);
  volup_geometry g = make_geometry(1, 1, 1);
  volup_problem problem = make_problem(&g);
  char text[256];
  static const char big[] = "I n1234567 ci32 co64 i16x16x16 k3 fp32";
  ACCEPTED(volup_problem_parse(big, &problem));
  ACCEPTED(volup_problem_print(&problem, text, sizeof(text)));
  CHECK(strcmp(text, big) == 0);
  volup_model* model = make_model(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  const char* json = NULL;
  ACCEPTED(volup_model_describe(model, &json));
  CHECK(json != NULL && strchr(json, '{') != NULL && strstr(json, ",0,") == NULL);
  volup_model_destroy(model);
  setlocale(LC_ALL, "C");
}

static void small_functions(void) {
  CHECK(volup_version() ==
        VOLUP_VERSION_MAJOR * 10000 + VOLUP_VERSION_MINOR * 100 + VOLUP_VERSION_PATCH);
  CHECK(strcmp(volup_status_name(VOLUP_STATUS_OK), "ok") == 0);
  CHECK(strcmp(volup_status_name(VOLUP_STATUS_INVALID_ARGUMENT), "invalid argument") == 0);
  CHECK(strcmp(volup_status_name((volup_status)12345), "unknown") == 0);
  int32_t count = -7;
  REFUSED(volup_device_count(VOLUP_DEVICE_CPU, NULL), VOLUP_STATUS_INVALID_ARGUMENT,
          "count: got NULL");
  REFUSED_UNTOUCHED(count, volup_device_count(VOLUP_DEVICE_AUTO, &count),
                    VOLUP_STATUS_INVALID_ARGUMENT, "device_type: got 0");
  REFUSED_UNTOUCHED(count, volup_device_count(3, &count), VOLUP_STATUS_INVALID_ARGUMENT,
                    "device_type: got 3");
  ACCEPTED(volup_device_count(VOLUP_DEVICE_CPU, &count));
  CHECK(count == 1);
}

const test_case problem_cases[] = {
    {"parse_arguments", parse_arguments},
    {"parse_words", parse_words},
    {"print", print},
    {"locale", locale},
    {"small_functions", small_functions},
    {NULL, NULL},
};
