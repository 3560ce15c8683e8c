/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what a program compiled against volup.h has built into itself: sizes, offsets and enum
 * values. The output is compared with layout.txt. check_abi.sh sees to it that no struct, field or
 * value of the header is missing here.
 */
#include <stddef.h>
#include <stdio.h>

#include "volup/volup.h"

#define STRUCT(type) printf("struct %s size %zu\n", #type, sizeof(type))
#define FIELD(type, field)                                                    \
  printf("%s.%s offset %zu size %zu\n", #type, #field, offsetof(type, field), \
         sizeof(((type*)0)->field))
#define VALUE(name) printf("%s %d\n", #name, (int)(name))
#define TYPE(type) printf("type %s size %zu\n", #type, sizeof(type))

static void geometry(void) {
  STRUCT(volup_geometry);
  FIELD(volup_geometry, struct_size);
  FIELD(volup_geometry, in_channels);
  FIELD(volup_geometry, out_channels);
  FIELD(volup_geometry, groups);
  FIELD(volup_geometry, kernel);
  FIELD(volup_geometry, stride);
  FIELD(volup_geometry, padding_begin);
  FIELD(volup_geometry, padding_end);
  FIELD(volup_geometry, output_padding);
  FIELD(volup_geometry, dilation);
}

static void model(void) {
  STRUCT(volup_epilogue);
  FIELD(volup_epilogue, struct_size);
  FIELD(volup_epilogue, kind);
  FIELD(volup_epilogue, shift);
  FIELD(volup_epilogue, divisor);
  FIELD(volup_epilogue, subtract);
  FIELD(volup_epilogue, clamp_min);
  FIELD(volup_epilogue, clamp_max);

  STRUCT(volup_model_desc);
  FIELD(volup_model_desc, struct_size);
  FIELD(volup_model_desc, geometry);
  FIELD(volup_model_desc, epilogue);
  FIELD(volup_model_desc, weight);
  FIELD(volup_model_desc, weight_count);
  FIELD(volup_model_desc, bias);
  FIELD(volup_model_desc, bias_count);

  STRUCT(volup_load_options);
  FIELD(volup_load_options, struct_size);
  FIELD(volup_load_options, module_directory);
  FIELD(volup_load_options, submodule);
  FIELD(volup_load_options, flags);
  FIELD(volup_load_options, epilogue);
  FIELD(volup_load_options, geometry);

  STRUCT(volup_problem);
  FIELD(volup_problem, struct_size);
  FIELD(volup_problem, geometry);
  FIELD(volup_problem, epilogue);
  FIELD(volup_problem, precision);
  FIELD(volup_problem, io_dtype);
  FIELD(volup_problem, input);
}

static void session(void) {
  STRUCT(volup_allocator);
  FIELD(volup_allocator, allocate);
  FIELD(volup_allocator, free);
  FIELD(volup_allocator, context);

  STRUCT(volup_session_options);
  FIELD(volup_session_options, struct_size);
  FIELD(volup_session_options, device_type);
  FIELD(volup_session_options, device_index);
  FIELD(volup_session_options, precision);
  FIELD(volup_session_options, io_dtype);
  FIELD(volup_session_options, threads);
  FIELD(volup_session_options, workspace_limit);
  FIELD(volup_session_options, allocator);
  FIELD(volup_session_options, kernel);

  STRUCT(volup_tensor);
  FIELD(volup_tensor, struct_size);
  FIELD(volup_tensor, data);
  FIELD(volup_tensor, dtype);
  FIELD(volup_tensor, device_type);
  FIELD(volup_tensor, device_index);
  FIELD(volup_tensor, rank);
  FIELD(volup_tensor, shape);
  FIELD(volup_tensor, strides);

  STRUCT(volup_timing);
  FIELD(volup_timing, struct_size);
  FIELD(volup_timing, iterations);
  FIELD(volup_timing, buffers);
  FIELD(volup_timing, median_ms);
  FIELD(volup_timing, min_ms);
  FIELD(volup_timing, p95_ms);
  FIELD(volup_timing, warm_median_ms);
  FIELD(volup_timing, warm_min_ms);
}

static void enums(void) {
  TYPE(volup_status);
  VALUE(VOLUP_STATUS_OK);
  VALUE(VOLUP_STATUS_INVALID_ARGUMENT);
  VALUE(VOLUP_STATUS_NOT_PREPARED);
  VALUE(VOLUP_STATUS_BUSY);
  VALUE(VOLUP_STATUS_UNREADABLE);
  VALUE(VOLUP_STATUS_UNSUPPORTED);
  VALUE(VOLUP_STATUS_UNAVAILABLE);
  VALUE(VOLUP_STATUS_OUT_OF_MEMORY);
  VALUE(VOLUP_STATUS_DEVICE_ERROR);
  VALUE(VOLUP_STATUS_INTERNAL);
  TYPE(volup_epilogue_kind);
  VALUE(VOLUP_EPILOGUE_IDENTITY);
  VALUE(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  VALUE(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  VALUE(VOLUP_EPILOGUE_ADD_HARDSWISH);

  TYPE(volup_load_flag);
  VALUE(VOLUP_LOAD_IGNORE_CRC);
  VALUE(VOLUP_LOAD_ALLOW_NONFINITE);
  TYPE(volup_precision);
  VALUE(VOLUP_PRECISION_FP32);
  VALUE(VOLUP_PRECISION_TF32);
  VALUE(VOLUP_PRECISION_BF16);
  VALUE(VOLUP_PRECISION_FP16);
  TYPE(volup_dtype);
  VALUE(VOLUP_DTYPE_FP32);
  VALUE(VOLUP_DTYPE_FP16);
  VALUE(VOLUP_DTYPE_BF16);
  TYPE(volup_device_type);
  VALUE(VOLUP_DEVICE_AUTO);
  VALUE(VOLUP_DEVICE_CPU);
  VALUE(VOLUP_DEVICE_CUDA);
  TYPE(volup_log_level);
  VALUE(VOLUP_LOG_ERROR);
  VALUE(VOLUP_LOG_INFO);
  VALUE(VOLUP_LOG_DEBUG);
}

int main(void) {
  geometry();
  model();
  session();
  enums();
  return 0;
}
