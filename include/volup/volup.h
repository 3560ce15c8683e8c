/* SPDX-License-Identifier: Apache-2.0
 *
 * volup: inference of fused blocks built on a 3-D transposed convolution.
 *
 * This header is the whole C ABI, in the order of use: version, status, model, session, tensors,
 * run, device memory, timing, log. It is C99 and includes no CUDA header.
 *
 *   volup_model   what a file says: geometry + epilogue + weights. Immutable; any number of threads
 *                 may use it at once.
 *   volup_session a model on a device: packed weights, workspace, the kernel chosen for each shape.
 *                 Used by one thread at a time; many sessions may share one model.
 *
 * Rules that hold for every function:
 *   - A function that can fail returns volup_status. On anything but VOLUP_STATUS_OK each
 *     out-parameter is untouched, nothing needs freeing, and volup_last_error() says what happened.
 *   - Destroy functions return void and accept NULL.
 *   - Strings are UTF-8 and zero-terminated. Sizes of memory are bytes (size_t), dimensions and
 *     element counts are int64_t. Axes are ordered D, H, W; tensors are dense N, C, D, H, W.
 *   - A struct begins with struct_size: set it to sizeof(the struct) and zero the rest, and each
 *     field has its default. Later versions append fields and never move one.
 *   - "Thread-safe" means: callable from any thread at any time.
 *   - The caller's current CUDA device is the same after a call as before it, also on errors.
 */
#ifndef VOLUP_VOLUP_H_
#define VOLUP_VOLUP_H_

#include <stddef.h>
#include <stdint.h>

#if defined(VOLUP_BUILDING)
#define VOLUP_API __attribute__((visibility("default")))
#else
#define VOLUP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------------------------- */

#define VOLUP_VERSION_MAJOR 1
#define VOLUP_VERSION_MINOR 0
#define VOLUP_VERSION_PATCH 0

/* Version of the library that is loaded, as major * 10000 + minor * 100 + patch.
 * Thread-safe. Since 1.0. */
VOLUP_API int32_t volup_version(void);

/* ---- Status -------------------------------------------------------------------------------- */

/* What the caller can do next. Values are pinned; a value is never reused. */
typedef enum volup_status {
  VOLUP_STATUS_OK = 0,
  /* The call is at fault: fix an argument and call again. */
  VOLUP_STATUS_INVALID_ARGUMENT = 1,
  VOLUP_STATUS_NOT_PREPARED = 2, /* call volup_session_prepare with this shape first */
  VOLUP_STATUS_BUSY = 3, /* another thread is inside this session: give each thread its own */
  /* The file is at fault. */
  VOLUP_STATUS_UNREADABLE = 10,  /* missing, empty, truncated, damaged, or of another kind */
  VOLUP_STATUS_UNSUPPORTED = 11, /* sound, but not something volup computes (words say what) */
  /* The machine is at fault: another device or build may do. */
  VOLUP_STATUS_UNAVAILABLE = 20,   /* no such device, driver too old, loader module not installed */
  VOLUP_STATUS_OUT_OF_MEMORY = 21, /* host or device memory, or the workspace limit */
  VOLUP_STATUS_DEVICE_ERROR = 22,  /* the device reported a fault; destroy the session */
  /* volup is at fault: please report it. */
  VOLUP_STATUS_INTERNAL = 30
} volup_status;

/* Name of a status, "invalid argument" for example; never NULL. Thread-safe. Since 1.0. */
VOLUP_API const char* volup_status_name(volup_status status);

/* What the last call of this thread that failed had to say: "what: got X, need Y (where)". Empty if
 * none failed. Valid until this thread's next volup call that fails. Thread-safe. Since 1.0. */
VOLUP_API const char* volup_last_error(void);

/* ---- Model --------------------------------------------------------------------------------- */

/* Geometry of a 3-D transposed convolution. A zero in kernel, stride, dilation, groups is not a
 * default: these are always given. Output size per axis:
 *   (in - 1) * stride - padding_begin - padding_end + dilation * (kernel - 1) + output_padding + 1
 * Valid: kernel, stride, dilation, groups, channels >= 1; paddings >= 0;
 * output_padding < max(stride, dilation); groups divides both channel counts. */
typedef struct volup_geometry {
  size_t struct_size;
  int64_t in_channels;
  int64_t out_channels;
  int64_t groups;
  int64_t kernel[3];
  int64_t stride[3];
  int64_t padding_begin[3];
  int64_t padding_end[3];
  int64_t output_padding[3];
  int64_t dilation[3];
} volup_geometry;

/* What follows the convolution; y is the convolution plus its bias. */
typedef enum volup_epilogue_kind {
  /* out = y. For checking a build: adjoint, impulse and exactness tests need it. */
  VOLUP_EPILOGUE_IDENTITY = 0,
  /* l = logsumexp of y over channels; out = clamp(l * sigmoid(l + shift) / divisor - subtract,
   * clamp_min, clamp_max). One output channel. */
  VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP = 1,
  /* out = sigmoid(softmax of y over channels). */
  VOLUP_EPILOGUE_SOFTMAX_SIGMOID = 2,
  /* t = y + add; out = (t * (clamp(t + shift, clamp_min, clamp_max) / divisor)) * t. */
  VOLUP_EPILOGUE_ADD_HARDSWISH = 3
} volup_epilogue_kind;

/* Epilogue and its constants; those its kind does not name are ignored. Fill with
 * volup_epilogue_init, then change what differs. */
typedef struct volup_epilogue {
  size_t struct_size;
  int32_t kind;    /* volup_epilogue_kind */
  float shift;     /* logsumexp_swish_clamp: 3; add_hardswish: 3 */
  float divisor;   /* logsumexp_swish_clamp: 6; add_hardswish: 6 */
  float subtract;  /* logsumexp_swish_clamp: 0 */
  float clamp_min; /* logsumexp_swish_clamp: -1; add_hardswish: 0 */
  float clamp_max; /* logsumexp_swish_clamp: 1; add_hardswish: 6 */
} volup_epilogue;

/* A model from arrays. */
typedef struct volup_model_desc {
  size_t struct_size;
  const volup_geometry* geometry;
  const volup_epilogue* epilogue;
  const float* weight;  /* [in_channels, out_channels / groups, kD, kH, kW], dense, copied */
  int64_t weight_count; /* elements at weight: checked against the geometry */
  const float* bias;    /* [out_channels], copied; NULL: no bias */
  int64_t bias_count;   /* elements at bias; 0 with NULL */
} volup_model_desc;

/* What a load lets pass that it would refuse. Since 1.0. */
typedef enum volup_load_flag {
  VOLUP_LOAD_IGNORE_CRC = 1,     /* stored CRC-32 that do not fit: files written without them */
  VOLUP_LOAD_ALLOW_NONFINITE = 2 /* weights and biases that are NaN or infinite */
} volup_load_flag;

/* How to load a file. NULL stands for all defaults. A struct that ends with module_directory, its
 * first form, is accepted: the fields after it then have their defaults. */
typedef struct volup_load_options {
  size_t struct_size;
  /* Directory of the loader modules (libvolup_hdf5.so, libvolup_torchscript.so). NULL: the
   * environment's VOLUP_MODULE_DIR, else the directory volup/ beside the library. */
  const char* module_directory;
  /* Name of the block to pick out of a file that holds more: "decoder.up1". NULL: the file is one
   * block, or holds one weight. Since 1.0. */
  const char* submodule;
  uint32_t flags; /* volup_load_flag, or-ed. Since 1.0. */
  /* What a file of weights alone does not say. A file that says them itself must agree. NULL: the
   * file says them. A subtract of 0 is the file's, where it has one. Since 1.0. */
  const volup_epilogue* epilogue;
  /* The same for the geometry. in_channels, out_channels and each kernel size may be 0: taken from
   * the weight's shape, and where they are not 0 checked against it. Since 1.0. */
  const volup_geometry* geometry;
} volup_load_options;

typedef struct volup_model volup_model;

/* Sets struct_size, kind and the default constants of that kind in *epilogue.
 * Errors: INVALID_ARGUMENT (NULL, unknown kind). Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_epilogue_init(volup_epilogue_kind kind, volup_epilogue* epilogue);

/* Loads a model from the file at path: volup's own HDF5 (docs/hdf5-format.md), TorchScript, ONNX;
 * Keras HDF5 with options that say the epilogue; or weights alone (a PyTorch state_dict,
 * safetensors, flat HDF5) with options that say the rest. The kind is found from the content, not
 * from the name. options may be NULL. The caller owns *model.
 * Errors: INVALID_ARGUMENT; UNREADABLE; UNSUPPORTED (names the first operation that does not fit,
 * all faults of an HDF5 file at once, or what the options leave open; also: weights that are not
 * finite); UNAVAILABLE (module missing); OUT_OF_MEMORY. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_load(const char* path, const volup_load_options* options,
                                        volup_model** model);

/* As volup_model_load, from size bytes at data, which may be freed afterwards.
 * Errors as there. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_load_memory(const void* data, size_t size,
                                               const volup_load_options* options,
                                               volup_model** model);

/* Makes a model from arrays, which are copied. The caller owns *model.
 * Errors: INVALID_ARGUMENT with the formula's values. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_create(const volup_model_desc* desc, volup_model** model);

/* Writes the model to path in volup's HDF5 format, replacing a file of that name only when the new
 * one is complete. options may be NULL. Errors: INVALID_ARGUMENT; UNREADABLE (path cannot be
 * written); UNAVAILABLE (no HDF5 module). Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_save(const volup_model* model, const char* path,
                                        const volup_load_options* options);

/* Copies the model's geometry / epilogue into *out, whose struct_size must be set.
 * Errors: INVALID_ARGUMENT. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_geometry(const volup_model* model, volup_geometry* out);
VOLUP_API volup_status volup_model_epilogue(const volup_model* model, volup_epilogue* out);

/* Sets *weight to the fp32 weights [in_channels, out_channels / groups, kD, kH, kW] and *bias to
 * the bias [out_channels] or NULL. Owned by the model, valid as long as it is.
 * Errors: INVALID_ARGUMENT. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_weights(const volup_model* model, const float** weight,
                                           const float** bias);

/* Sets *json to a JSON object that describes the model: type, geometry, epilogue, source (kind,
 * producer, dtypes), unused, notes. Owned by the model, valid as long as it is.
 * Errors: INVALID_ARGUMENT. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_describe(const volup_model* model, const char** json);

/* Shape of the output for an input of shape input [N, C, D, H, W]; N may be 0.
 * Errors: INVALID_ARGUMENT (wrong channels, output size <= 0, overflow). Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_model_output_shape(const volup_model* model, const int64_t input[5],
                                                int64_t output[5]);

/* Frees the model. Sessions made from it stay valid. NULL is accepted. Since 1.0. */
VOLUP_API void volup_model_destroy(volup_model* model);

/* ---- Problem string ------------------------------------------------------------------------ */

typedef enum volup_precision {
  VOLUP_PRECISION_FP32 = 0, /* fp32-class accuracy: FMA or error-compensated products */
  VOLUP_PRECISION_TF32 = 1, /* products of TF32 class are permitted; sums stay fp32 */
  VOLUP_PRECISION_BF16 = 2, /* products of bf16 operands are permitted */
  VOLUP_PRECISION_FP16 = 3  /* products of fp16 operands are permitted; needs fp16 I/O */
} volup_precision;

typedef enum volup_dtype {
  VOLUP_DTYPE_FP32 = 0,
  VOLUP_DTYPE_FP16 = 1,
  VOLUP_DTYPE_BF16 = 2
} volup_dtype;

/* One problem: what is computed on which sizes. */
typedef struct volup_problem {
  size_t struct_size;
  volup_geometry* geometry; /* the caller's, with its struct_size set; parse fills it */
  int32_t epilogue;         /* volup_epilogue_kind */
  int32_t precision;        /* volup_precision */
  int32_t io_dtype;         /* volup_dtype */
  int64_t input[5];         /* N, C, D, H, W */
} volup_problem;

/* Parses "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 d1 g1 fp32": the letter of the epilogue (A
 * logsumexp_swish_clamp, B softmax_sigmoid, C add_hardswish, I identity), then fields in any order.
 * k, s, p, op, d take one value or DxHxW; p takes begin:end per axis. Left out: s1 p0 op0 d1 g1
 * fp32 io=fp32. problem->struct_size and problem->geometry must be set.
 * Errors: INVALID_ARGUMENT naming the word. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_problem_parse(const char* text, volup_problem* problem);

/* Writes the problem's string, zero-terminated, into size bytes at buffer (256 always suffice).
 * Errors: INVALID_ARGUMENT (also: buffer too small). Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_problem_print(const volup_problem* problem, char* buffer, size_t size);

/* ---- Session ------------------------------------------------------------------------------- */

typedef enum volup_device_type {
  VOLUP_DEVICE_AUTO = 0, /* the first usable CUDA device, else the CPU; describe says why */
  VOLUP_DEVICE_CPU = 1,
  VOLUP_DEVICE_CUDA = 2
} volup_device_type;

/* Memory from the caller, for all that a session keeps on its device. Both functions or neither. */
typedef struct volup_allocator {
  /* bytes of device memory (host memory on a CPU session) aligned to 256, or NULL. Called only by
   * prepare, run and time; never by enqueue. */
  void* (*allocate)(void* context, size_t bytes);
  /* Frees what allocate returned. Called by destroy, at the latest. */
  void (*free)(void* context, void* memory, size_t bytes);
  void* context;
} volup_allocator;

typedef struct volup_session_options {
  size_t struct_size;
  int32_t device_type;    /* volup_device_type */
  int32_t device_index;   /* CUDA device number */
  int32_t precision;      /* volup_precision */
  int32_t io_dtype;       /* volup_dtype of x, add and out */
  int32_t threads;        /* CPU: 0 stands for every CPU this process may use */
  size_t workspace_limit; /* bytes; 0: no limit. Below a kernel's need, batches are cut in pieces */
  volup_allocator allocator; /* zero: volup allocates */
  const char* kernel;        /* force this kernel (its refusal becomes an error); NULL: choose */
} volup_session_options;

typedef struct volup_session volup_session;

/* Makes a session of model on a device; touches no GPU unless the options ask for one. options may
 * be NULL. The caller owns *session; the model may be destroyed before it.
 * Errors: INVALID_ARGUMENT (also: fp16 precision without fp16 I/O, unknown kernel name);
 * UNAVAILABLE (no GPU, driver too old, compute capability below 8.0); OUT_OF_MEMORY.
 * Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_session_create(const volup_model* model,
                                            const volup_session_options* options,
                                            volup_session** session);

/* Sets *device_type and *device_index to what AUTO became. Either may be NULL.
 * Errors: INVALID_ARGUMENT. One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_device(const volup_session* session, int32_t* device_type,
                                            int32_t* device_index);

/* Sets *bytes to the exact workspace the kernel chosen for this input shape will use, under the
 * session's limit. Prepares nothing. Errors: INVALID_ARGUMENT; UNSUPPORTED; OUT_OF_MEMORY (the
 * limit is below the smallest piece). One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_workspace_size(volup_session* session, const int64_t input[5],
                                                    size_t* bytes);

/* Lends the session bytes of workspace on its device, aligned to 256, for shapes prepared from now
 * on; the memory must outlive the session. NULL with 0: back to the allocator.
 * Errors: INVALID_ARGUMENT (misaligned); BUSY. One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_set_workspace(volup_session* session, void* memory,
                                                   size_t bytes);

/* Chooses the kernel for inputs of this shape, packs the weights once, and sizes the workspace.
 * After it, enqueue with this shape allocates nothing. Memory that an earlier prepare gave stays
 * where it is. Errors: INVALID_ARGUMENT; UNSUPPORTED (every kernel refused; or the forced one did);
 * OUT_OF_MEMORY; DEVICE_ERROR; BUSY. One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_prepare(volup_session* session, const int64_t input[5]);

/* Sets *json to a JSON object: problem, device, kernel, tile, workspace_bytes, packed_bytes, and
 * for every kernel that was not chosen why. Owned by the session, valid until its next describe.
 * Errors: INVALID_ARGUMENT; BUSY. One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_describe(volup_session* session, const int64_t input[5],
                                              const char** json);

/* ---- Tensors and running ------------------------------------------------------------------- */

/* A view of the caller's memory. */
typedef struct volup_tensor {
  size_t struct_size;
  void* data;           /* may be NULL if the tensor has no elements; aligned to its element */
  int32_t dtype;        /* volup_dtype */
  int32_t device_type;  /* VOLUP_DEVICE_CPU or VOLUP_DEVICE_CUDA */
  int32_t device_index; /* CUDA device number */
  int32_t rank;         /* 5 */
  int64_t shape[5];     /* N, C, D, H, W */
  int64_t strides[5];   /* in elements; all zero stands for dense. Anything else must be dense */
} volup_tensor;

/* Computes out from x (and add, for add_hardswish; else NULL) in host memory, on any session, and
 * waits. Prepares the shape if need be. add has the shape of out. out must not overlap x or add.
 * Errors, before anything is computed and with out untouched: INVALID_ARGUMENT (shape, rank,
 * dtype, device, strides, alignment, NULL), and those of prepare; DEVICE_ERROR; BUSY.
 * One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_run(volup_session* session, const volup_tensor* x,
                                         const volup_tensor* add, const volup_tensor* out);

/* Enqueues the work on stream (a cudaStream_t; NULL: the default stream) and returns: no
 * allocation, lock or synchronisation, so it can be captured into a CUDA graph, whose replays are
 * valid until the session is destroyed. The work may set itself up while what is before it on the
 * stream ends, and waits for that before it touches a tensor. Tensors are on the session's device
 * and must stay until the work is done. One session's enqueues share its workspace: keep them on
 * one stream, or order them. On a CPU session stream must be NULL and the work is done on return.
 * Errors, before any launch: INVALID_ARGUMENT as for run; NOT_PREPARED; DEVICE_ERROR (the launch
 * failed); BUSY. One thread at a time. Since 1.0. */
VOLUP_API volup_status volup_session_enqueue(volup_session* session, const volup_tensor* x,
                                             const volup_tensor* add, const volup_tensor* out,
                                             void* stream);

/* Frees the session's memory, after waiting for its device. NULL is accepted. Since 1.0. */
VOLUP_API void volup_session_destroy(volup_session* session);

/* ---- Device memory for callers without CUDA headers ---------------------------------------- */

typedef struct volup_buffer volup_buffer;

/* Number of devices of a type that a session can be made on: 1 for the CPU, the CUDA devices of
 * compute capability 8.0 or more otherwise (0 with no driver). Errors: INVALID_ARGUMENT.
 * Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_device_count(int32_t device_type, int32_t* count);

/* bytes of memory on a device, aligned to 256. The caller owns *buffer.
 * Errors: INVALID_ARGUMENT; UNAVAILABLE; OUT_OF_MEMORY. Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_buffer_create(int32_t device_type, int32_t device_index, size_t bytes,
                                           volup_buffer** buffer);

/* The buffer's memory, for volup_tensor.data; NULL for NULL. Thread-safe. Since 1.0. */
VOLUP_API void* volup_buffer_data(const volup_buffer* buffer);

/* Copies bytes between host memory and the buffer at offset, and waits. copy_out sees all work
 * enqueued before it on any stream. Errors: INVALID_ARGUMENT (past the end); DEVICE_ERROR.
 * One thread at a time for one buffer. Since 1.0. */
VOLUP_API volup_status volup_buffer_copy_in(volup_buffer* buffer, size_t offset, const void* source,
                                            size_t bytes);
VOLUP_API volup_status volup_buffer_copy_out(const volup_buffer* buffer, size_t offset,
                                             void* destination, size_t bytes);

/* Frees the buffer. NULL is accepted. Since 1.0. */
VOLUP_API void volup_buffer_destroy(volup_buffer* buffer);

/* ---- Timing -------------------------------------------------------------------------------- */

/* Milliseconds of one enqueue, by CUDA events (the steady clock on a CPU session). */
typedef struct volup_timing {
  size_t struct_size;
  int32_t iterations; /* in each of the two series */
  int32_t buffers;    /* sets of tensors the cold series rotated over */
  double median_ms;   /* caches cold: every set is evicted before it is used again */
  double min_ms;
  double p95_ms;
  double warm_median_ms; /* one set of tensors, again and again */
  double warm_min_ms;
} volup_timing;

/* Prepares input, fills seeded random tensors, warms up and times iterations (0: 50) enqueues.
 * timing->struct_size must be set. Errors: those of prepare and enqueue. One thread at a time.
 * Since 1.0. */
VOLUP_API volup_status volup_session_time(volup_session* session, const int64_t input[5],
                                          int32_t iterations, volup_timing* timing);

/* ---- Log ----------------------------------------------------------------------------------- */

typedef enum volup_log_level {
  VOLUP_LOG_ERROR = 1, /* what volup_last_error says too */
  VOLUP_LOG_INFO = 2,  /* one line per prepare: problem, device, kernel */
  VOLUP_LOG_DEBUG = 3  /* refusals, module openings, allocations */
} volup_log_level;

/* Receives one line, without a newline, valid during the call; may be called from any thread. */
typedef void (*volup_log_sink)(void* context, volup_log_level level, const char* line);

/* Sends log lines of level and below to sink; NULL: to nowhere. Until it is called, lines go to
 * stderr if the environment has VOLUP_LOG set to error, info or debug, else to nowhere.
 * Errors: INVALID_ARGUMENT (unknown level). Thread-safe. Since 1.0. */
VOLUP_API volup_status volup_set_log(volup_log_sink sink, void* context, volup_log_level level);

#ifdef __cplusplus
}
#endif

#endif /* VOLUP_VOLUP_H_ */
