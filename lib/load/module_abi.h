/* SPDX-License-Identifier: Apache-2.0
 *
 * What a loader module and the library say to each other. A module is a shared object beside the
 * library (libvolup_hdf5.so, libvolup_torchscript.so, ...), opened on demand with local scope. It
 * exports volup_module_open_v2 alone and links nothing of volup: no C++ type crosses, and what one
 * side allocates that side frees.
 */
#ifndef VOLUP_LOAD_MODULE_ABI_H_
#define VOLUP_LOAD_MODULE_ABI_H_

#include "volup/volup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Text owned by the module; free it with volup_module.free_text. */
typedef struct volup_module_text {
  char* text; /* UTF-8; NULL: none */
} volup_module_text;

/* A file's content, whole, in memory owned by the library. */
typedef struct volup_module_source {
  const void* data;
  size_t size;
  const char* name; /* path, or "memory": for messages alone */
} volup_module_source;

/* A model as the file says it. On load every pointer is the module's, until release; on save every
 * pointer is the library's. Lists are UTF-8, one entry a line; NULL stands for none. */
typedef struct volup_module_model {
  volup_geometry geometry;
  volup_epilogue epilogue;
  float* weight; /* [in_channels, out_channels / groups, kD, kH, kW] */
  int64_t weight_count;
  float* bias; /* [out_channels] or NULL */
  int64_t bias_count;
  char* kind;         /* "torchscript", "volup-hdf5" */
  char* producer;     /* what wrote the file: "PyTorch 2.11.0", "volup 1.0.0" */
  char* weight_dtype; /* as stored: "float32", "float16", "bfloat16", "float64" */
  char* origin_kind;  /* what the file was converted from, as kind; NULL: nothing */
  char* origin_producer;
  char* origin_sha256; /* lower-case hex of the file it was converted from */
  char* weight_name;   /* what the file calls the weight: "up.weight"; NULL: nothing, or "weight" */
  char* bias_name;
  char* unused; /* parameters and buffers that the file has and the model does not use */
  char* notes;  /* what was accepted though not spelled as expected */
  void* owner;  /* the module's own, for release; NULL on save */
} volup_module_model;

typedef struct volup_module {
  /* Fills *model. options is never NULL and whole; flags, epilogue and geometry are valid in
   * themselves, and the library holds the answer against them: a module reads what its files leave
   * open. Weights that are not finite are the library's to refuse. Returns a volup_status; unless
   * it is OK, *model is untouched and error->text says why, without naming the file (the library
   * does). Any thread. */
  int32_t (*load)(const volup_module_source* source, const volup_load_options* options,
                  volup_module_model* model, volup_module_text* error);
  /* Writes the model to path (never half: a complete file replaces what was there, or nothing
   * changes). NULL: the module cannot write. Any thread. */
  int32_t (*save)(const volup_module_model* model, const char* path, volup_module_text* error);
  void (*release)(volup_module_model* model);
  void (*free_text)(volup_module_text* text);
  const char* library; /* what it stands on, with its version: "HDF5 1.10.8", "libtorch 1.13.1" */
} volup_module;

/* Fills *module; returns a volup_status. The one symbol of a module. */
typedef int32_t (*volup_module_open_fn)(volup_module* module);
#define VOLUP_MODULE_OPEN_SYMBOL "volup_module_open_v2"

#ifdef __cplusplus
}
#endif

#endif /* VOLUP_LOAD_MODULE_ABI_H_ */
