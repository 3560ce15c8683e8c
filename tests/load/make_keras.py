#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the Keras files of tests/load/keras/, each with an input and a float64 output.

Needs TensorFlow with Keras 3, and tf_keras for the files of Keras 2:
    pip install tensorflow-cpu tf_keras h5py
    python3 make_keras.py [FOLDER]

Each NAME.h5 (or NAME.weights.h5) is written by Keras itself. NAME.io.h5 holds x and y in N, C, D, H, W
(add too, where the block has one), and as attributes what a user would say on the command line:
`options`, empty where the file says all. y is in float64: the convolution by Keras' own layer where
TensorFlow's CPU kernels have it (no dilation, channels last), and in every case by the definition of
conv3d_transpose below, which must agree with it.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import h5py
import keras
import numpy as np
import tensorflow as tf
import tf_keras

SEED = 20


def transposed(x, kernel, strides, padding, output_padding, dilation):
    """The gradient of TensorFlow's conv3d, in float64. x [N, D, H, W, in], kernel [k, k, k, out, in]."""
    x, kernel = x.astype(np.float64), kernel.astype(np.float64)
    sizes, before = [], []
    for axis in range(3):
        n, k, s = x.shape[1 + axis], (kernel.shape[axis] - 1) * dilation[axis] + 1, strides[axis]
        if output_padding is None:
            size = n * s if padding == "same" else n * s + max(k - s, 0)
        else:
            pad = k // 2 if padding == "same" else 0
            size = (n - 1) * s + k - 2 * pad + output_padding[axis]
        sizes.append(size)
        # conv3d over `size` voxels gives n of them back.
        if padding == "same":
            assert -(-size // s) == n
            before.append(max((n - 1) * s + k - size, 0) // 2)
        else:
            assert -(-(size - k + 1) // s) == n
            before.append(0)
    y = np.zeros([x.shape[0], *sizes, kernel.shape[3]])
    for i in np.ndindex(*x.shape[1:4]):
        for j in np.ndindex(*kernel.shape[:3]):
            o = [i[a] * strides[a] + j[a] * dilation[a] - before[a] for a in range(3)]
            if all(0 <= o[a] < sizes[a] for a in range(3)):
                y[:, o[0], o[1], o[2]] += x[:, i[0], i[1], i[2]] @ kernel[j].T
    return y


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def epilogue(kind, y, add):
    """y [N, D, H, W, C] -> the block's output, channels last, in float64."""
    if kind == "identity":
        return y
    if kind == "softmax_sigmoid":
        e = np.exp(y - y.max(-1, keepdims=True))
        return sigmoid(e / e.sum(-1, keepdims=True))
    if kind == "logsumexp_swish_clamp":
        m = y.max(-1, keepdims=True)
        l = np.log(np.exp(y - m).sum(-1, keepdims=True)) + m
        return np.clip(l * sigmoid(l + 3) / 6, -1, 1)
    t = y + add
    return t * (np.clip(t + 3, 0, 6) / 6) * t


def randomize(model, rng):
    model.set_weights([rng.normal(0, 1, w.shape).astype(w.dtype) for w in model.get_weights()])


def build(api, layer, after=(), channels=3, size=(3, 4, 2), channels_first=False, before=()):
    shape = (channels, *size) if channels_first else (*size, channels)
    return api.Sequential([api.Input(shape), *before, layer, *after])


def write_io(path, layer, weights, kind, options, rng, size, channels):
    kernel = weights[0].astype(np.float32)
    x = rng.normal(0, 1, (2, *size, channels)).astype(np.float32)
    c = layer.get_config()
    triple = lambda v: (v,) * 3 if isinstance(v, int) else tuple(v)
    op = c.get("output_padding")
    y = transposed(x, kernel, triple(c["strides"]), c["padding"], op if op is None else triple(op),
                   triple(c.get("dilation_rate", 1)))
    if c["use_bias"]:
        y += weights[1].astype(np.float64)
    if triple(c.get("dilation_rate", 1)) == (1, 1, 1) and c["data_format"] == "channels_last":
        twin = dict(c, name="twin", dtype="float64")
        twin = keras.layers.Conv3DTranspose(**{k: twin[k] for k in (
            "filters", "kernel_size", "strides", "padding", "output_padding", "use_bias", "name", "dtype")})
        twin.build((None, *size, channels))
        twin.set_weights([w.astype(np.float64) for w in weights])
        got = twin(tf.constant(x.astype(np.float64))).numpy()
        np.testing.assert_allclose(got, y, rtol=1e-12, atol=1e-12)
    add = rng.normal(0, 1, y.shape).astype(np.float32) if kind == "add_hardswish" else None
    out = epilogue(kind, y, None if add is None else add.astype(np.float64))
    first = lambda v: np.ascontiguousarray(np.moveaxis(v, -1, 1))
    with h5py.File(path + ".io.h5", "w") as f:
        f["x"], f["y"] = first(x), first(out)
        if add is not None:
            f["add"] = first(add)
        # What the loader must give, weight by weight.
        f["weight"] = np.ascontiguousarray(np.transpose(kernel, (4, 3, 0, 1, 2)))
        if c["use_bias"]:
            f["bias"] = weights[1].astype(np.float32)
        f.attrs["options"] = options


def case(folder, name, kind, options, layer, api=keras, save="whole", after=(), before=(), channels=3,
         size=(3, 4, 2), train=False):
    rng = np.random.default_rng(SEED + sum(map(ord, name)))
    first = layer.get_config()["data_format"] == "channels_first"
    model = build(api, layer, after, channels, size, first, before)
    randomize(model, rng)
    if train:
        model.compile(optimizer="adam", loss="mse")
        x = rng.normal(0, 1, (2, *size, channels)).astype(np.float32)
        model.fit(x, np.zeros(model(x).shape), epochs=1, verbose=0)
    path = os.path.join(folder, name)
    if save == "whole":
        model.save(path + ".h5")
    elif save == "weights" and api is keras:
        model.save_weights(path + ".weights.h5")
    elif save == "weights":
        model.save_weights(path + ".h5")
    write_io(path, layer, layer.get_weights(), kind, options, rng, size, channels)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "keras")
    os.makedirs(folder, exist_ok=True)
    keras.utils.set_random_seed(SEED)
    three, two = keras.layers, tf_keras.layers
    a = "--type logsumexp_swish_clamp"
    b = "--type softmax_sigmoid"
    c = "--type add_hardswish"

    for version, layers, api in (("keras3", three, keras), ("keras2", two, tf_keras)):
        last = [layers.Softmax(axis=-1), layers.Activation("sigmoid")]
        # `same`: begin 0, end 1 an axis, which symmetric padding cannot say.
        case(folder, version + "_same_k3s2", "softmax_sigmoid", "",
             layers.Conv3DTranspose(4, 3, strides=2, padding="same"), api, after=last, train=True)
        # Kernels below, at and above the stride; both remainders.
        case(folder, version + "_same_mixed", "logsumexp_swish_clamp", a,
             layers.Conv3DTranspose(4, (2, 5, 4), strides=(3, 2, 1), padding="same"), api)
        case(folder, version + "_valid_mixed", "add_hardswish", c,
             layers.Conv3DTranspose(4, (2, 3, 1), strides=(3, 2, 2), padding="valid", use_bias=False), api)
        case(folder, version + "_same_output_padding", "identity", "--type identity",
             layers.Conv3DTranspose(4, (3, 4, 5), strides=(2, 3, 3), padding="same",
                                    output_padding=(1, 2, 1)), api)
        case(folder, version + "_valid_output_padding", "identity", "--type identity",
             layers.Conv3DTranspose(4, (2, 3, 3), strides=(2, 3, 2), padding="valid",
                                    output_padding=(1, 0, 1)), api)
        case(folder, version + "_channels_first", "logsumexp_swish_clamp", a,
             layers.Conv3DTranspose(4, 3, strides=2, padding="same", data_format="channels_first"), api)
        # `same` with k 3, s 2, as a user says it where the file holds weights alone.
        case(folder, version + "_weights", "softmax_sigmoid",
             b + " --stride 2 --padding 0:1 --output-padding 0",
             layers.Conv3DTranspose(4, 3, strides=2, padding="same", name="up"), api, save="weights",
             before=[layers.Dense(3)])
    # Keras 2 has no dilation here.
    case(folder, "keras3_dilated", "identity", "--type identity",
         three.Conv3DTranspose(4, (3, 2, 3), padding="same", dilation_rate=(2, 2, 3)))
    # Square in channels: nothing but the kind of the file says which axis is which.
    case(folder, "keras3_square", "softmax_sigmoid", b + " --stride 1",
         three.Conv3DTranspose(4, 4, name="up"), save="weights", channels=4, size=(2, 2, 2))
    case(folder, "keras3_half", "logsumexp_swish_clamp", a,
         three.Conv3DTranspose(4, 3, strides=2, padding="same", dtype="float16"))


main()
