// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 module: files of volup's schema as others would write them (through HDF5's own API), and
// with faults in them.
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "hdf5_under_test.h"

namespace volup::test {
namespace {

// ---- Files that others wrote -------------------------------------------------------------------

// Removes an attribute or a link, so that another can take its place.
void remove_attribute(hid_t file, const char* group, const char* name) {
  ASSERT_GE(H5Adelete_by_name(file, group, name, H5P_DEFAULT), 0) << group << " " << name;
}

void write_attribute(hid_t file, const char* group, const char* name, hid_t stored, hid_t memory,
                     std::vector<hsize_t> shape, const void* values) {
  if (H5Aexists_by_name(file, group, name, H5P_DEFAULT) > 0) remove_attribute(file, group, name);
  const hid_t space = shape.empty()
                          ? H5Screate(H5S_SCALAR)
                          : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t id =
      H5Acreate_by_name(file, group, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(id, 0);
  ASSERT_GE(H5Awrite(id, memory, values), 0);
  H5Aclose(id);
  H5Sclose(space);
}

void write_integer(hid_t file, const char* group, const char* name, int64_t value) {
  write_attribute(file, group, name, H5T_STD_I64LE, H5T_NATIVE_INT64, {}, &value);
}

void write_axes(hid_t file, const char* name, std::array<int64_t, 3> values) {
  write_attribute(file, "geometry", name, H5T_STD_I64LE, H5T_NATIVE_INT64, {3}, values.data());
}

void write_dataset(hid_t file, const char* name, hid_t stored, const std::vector<hsize_t>& shape,
                   const std::vector<float>& values, hid_t plist = H5P_DEFAULT) {
  if (H5Lexists(file, name, H5P_DEFAULT) > 0) H5Ldelete(file, name, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t id = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  ASSERT_GE(id, 0) << name;
  if (!values.empty()) {
    ASSERT_GE(H5Dwrite(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  H5Dclose(id);
  H5Sclose(space);
}

hid_t small_float(size_t exponent_bits, size_t bias) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  const size_t mantissa = 15 - exponent_bits;
  H5Tset_fields(type, 15, mantissa, exponent_bits, 0, mantissa);
  H5Tset_precision(type, 16);
  H5Tset_ebias(type, bias);
  H5Tset_size(type, 2);
  return type;
}

class Hdf5Foreign : public Hdf5Module {
 protected:
  // A good file, then changed.
  Outcome changed(const std::function<void(hid_t)>& change,
                  volup_epilogue_kind kind = VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP) {
    const Sample sample(kind);
    EXPECT_EQ(hdf5().save(sample.model, path("m.h5")), "");
    const hid_t file = H5Fopen(path("m.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    change(file);
    EXPECT_GE(H5Fclose(file), 0);
    return hdf5().load(read_file(path("m.h5")));
  }
};

TEST_F(Hdf5Foreign, StringsOfEveryKindReadAlike) {
  for (const H5T_cset_t cset : {H5T_CSET_ASCII, H5T_CSET_UTF8}) {
    for (const H5T_str_t padding : {H5T_STR_NULLTERM, H5T_STR_NULLPAD, H5T_STR_SPACEPAD}) {
      for (const bool variable : {false, true}) {
        for (const bool in_array : {false, true}) {
          SCOPED_TRACE(testing::Message() << "cset " << cset << " padding " << padding
                                          << " variable " << variable << " array " << in_array);
          const Outcome outcome = changed([&](hid_t file) {
            const hid_t type = H5Tcopy(H5T_C_S1);
            H5Tset_size(type, variable ? H5T_VARIABLE : 40);
            H5Tset_cset(type, cset);
            H5Tset_strpad(type, padding);
            const std::pair<const char*, std::string> texts[] = {
                {"format", "volup-model"}, {"type", "softmax_sigmoid"}, {"producer", "me"}};
            for (const auto& [name, text] : texts) {
              std::string cell = text;
              cell.resize(40, padding == H5T_STR_SPACEPAD ? ' ' : '\0');
              const char* const pointer = text.c_str();
              write_attribute(file, ".", name, type, type,
                              in_array ? std::vector<hsize_t>{1} : std::vector<hsize_t>{},
                              variable ? static_cast<const void*>(&pointer) : cell.data());
            }
            H5Tclose(type);
          });
          ASSERT_TRUE(outcome.ok()) << outcome.text;
          EXPECT_EQ(outcome.model.epilogue.kind, VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
          EXPECT_STREQ(outcome.model.producer, "me");
        }
      }
    }
  }
}

TEST_F(Hdf5Foreign, NumbersOfEveryWidthReadAlike) {
  const Outcome outcome = changed([](hid_t file) {
    const int8_t channels = 4;
    write_attribute(file, "geometry", "in_channels", H5T_STD_I8LE, H5T_NATIVE_INT8, {1}, &channels);
    const int64_t groups = 2;
    write_attribute(file, "geometry", "groups", H5T_STD_U16BE, H5T_NATIVE_INT64, {}, &groups);
    const double shift = 2.5;
    write_attribute(file, "epilogue", "shift", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, {}, &shift);
    const int64_t divisor = 5;
    write_attribute(file, "epilogue", "divisor", H5T_STD_I32BE, H5T_NATIVE_INT64, {}, &divisor);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.model.geometry.in_channels, 4);
  EXPECT_EQ(outcome.model.geometry.groups, 2);
  EXPECT_EQ(outcome.model.epilogue.shift, 2.5f);
  EXPECT_EQ(outcome.model.epilogue.divisor, 5.0f);
}

TEST_F(Hdf5Foreign, WeightsOfEveryFloatTypeAreConverted) {
  // Exact in every type.
  std::vector<float> values(72);
  std::iota(values.begin(), values.end(), -36.0f);
  const hid_t half = small_float(5, 15), brain = small_float(8, 127);
  const hid_t half_be = H5Tcopy(half);
  H5Tset_order(half_be, H5T_ORDER_BE);
  const std::pair<hid_t, const char*> types[] = {
      {H5T_IEEE_F64LE, "float64"}, {H5T_IEEE_F64BE, "float64"}, {H5T_IEEE_F32BE, "float32"},
      {half, "float16"},           {half_be, "float16"},        {brain, "bfloat16"}};
  for (const auto& [type, name] : types) {
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << " packed " << packed);
      const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
      if (packed) {
        const hsize_t chunk[] = {2, 3, 1, 2, 3};
        H5Pset_chunk(plist, 5, chunk);
        H5Pset_shuffle(plist);
        H5Pset_deflate(plist, 9);
        H5Pset_fletcher32(plist);
      }
      const hid_t stored = type;
      const Outcome outcome = changed([&](hid_t file) {
        write_dataset(file, "weight", stored, {4, 3, 1, 2, 3}, values, plist);
      });
      H5Pclose(plist);
      ASSERT_TRUE(outcome.ok()) << outcome.text;
      EXPECT_EQ(outcome.weight(), values);
      EXPECT_STREQ(outcome.model.weight_dtype, name);
    }
  }
}

TEST_F(Hdf5Foreign, WhatTheSchemaDoesNotNameIsReported) {
  const Outcome outcome = changed([](hid_t file) {
    write_dataset(file, "wieght", H5T_IEEE_F32LE, {2}, {1, 2});
    H5Gclose(H5Gcreate2(file, "optimizer", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    write_integer(file, ".", "epoch", 7);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.unused(), "bias\nhead.weight\n/optimizer\n/wieght\n/@epoch");
}

// ---- Faults ------------------------------------------------------------------------------------

struct Fault {
  const char* name;
  std::function<void(hid_t)> make;
  std::vector<const char*> words;
};

const std::vector<Fault>& faults() {
  static const auto* const list = new std::vector<Fault>{
      {"no weight",
       [](hid_t f) { H5Ldelete(f, "weight", H5P_DEFAULT); },
       {"dataset weight: got nothing, need [4, 3, 1, 2, 3]"}},
      {"rank",
       [](hid_t f) { write_dataset(f, "weight", H5T_IEEE_F32LE, {72}, {}); },
       {"shape of /weight: got [72], need [4, 3, 1, 2, 3]"}},
      {"shape",
       [](hid_t f) {
         write_dataset(f, "weight", H5T_IEEE_F32LE, {4, 6, 1, 2, 3}, {});
       },
       {"got [4, 6, 1, 2, 3], need [4, 3, 1, 2, 3]"}},
      {"bias length",
       [](hid_t f) {
         write_dataset(f, "bias", H5T_IEEE_F32LE, {3}, {1, 2, 3});
       },
       {"shape of /bias: got [3], need [6]"}},
      {"integer weight",
       [](hid_t f) {
         write_dataset(f, "weight", H5T_STD_I32LE, {4, 3, 1, 2, 3}, {});
       },
       {"type of /weight: got 32-bit integer, need float16"}},
      {"weight is a group",
       [](hid_t f) {
         H5Ldelete(f, "weight", H5P_DEFAULT);
         H5Gclose(H5Gcreate2(f, "weight", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       },
       {"weight: got a group, need a dataset"}},
      {"never written",
       [](hid_t f) {
         write_dataset(f, "weight", H5T_IEEE_F32LE, {4, 3, 1, 2, 3}, {});
       },
       {"storage: got 0 bytes"}},
      {"newer",
       [](hid_t f) { write_integer(f, ".", "format_version", 2); },
       {"format_version: got 2, newer than this volup reads, need at most 1"}},
      {"version 0",
       [](hid_t f) { write_integer(f, ".", "format_version", 0); },
       {"format_version: got 0"}},
      {"no format",
       [](hid_t f) { remove_attribute(f, ".", "format"); },
       {"attribute format: got nothing, need a string"}},
      {"format is a number",
       [](hid_t f) { write_integer(f, ".", "format", 1); },
       {"attribute format: got 64-bit integer, need a string"}},
      {"type",
       [](hid_t f) {
         const hid_t type = H5Tcopy(H5T_C_S1);
         H5Tset_size(type, 4);
         write_attribute(f, ".", "type", type, type, {}, "lstm");
         H5Tclose(type);
       },
       {"attribute type: got 'lstm', need one of identity, logsumexp_swish_clamp"}},
      {"no geometry",
       [](hid_t f) { H5Ldelete(f, "geometry", H5P_DEFAULT); },
       {"group geometry: got nothing"}},
      {"no kernel",
       [](hid_t f) { remove_attribute(f, "geometry", "kernel"); },
       {"attribute kernel: got nothing, need 3 integers (/geometry)"}},
      {"two strides",
       [](hid_t f) {
         const int64_t two[] = {2, 2};
         write_attribute(f, "geometry", "stride", H5T_STD_I64LE, H5T_NATIVE_INT64, {2}, two);
       },
       {"attribute stride: got 2 values, need 3 integers"}},
      {"float stride",
       [](hid_t f) {
         const double three[] = {2, 2, 2};
         write_attribute(f, "geometry", "stride", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3}, three);
       },
       {"attribute stride: got float64, need 3 integers"}},
      {"groups 0",
       [](hid_t f) { write_integer(f, "geometry", "groups", 0); },
       {"attribute groups: got 0, need 1 or more"}},
      {"groups 4",
       [](hid_t f) { write_integer(f, "geometry", "groups", 4); },
       {"attribute groups: got 4, need a divisor of in_channels 4 and of out_channels 6"}},
      {"negative padding",
       [](hid_t f) {
         write_axes(f, "padding_end", {0, -1, 0});
       },
       {"attribute padding_end: got [0, -1, 0], need 0 or more"}},
      {"output_padding",
       [](hid_t f) {
         write_axes(f, "output_padding", {3, 0, 2});
       },
       {"output_padding on axis D: got 3, need less than max(stride, dilation) = 3",
        "output_padding on axis W: got 2, need less than max(stride, dilation) = 2"}},
      {"absurd kernel",
       [](hid_t f) {
         write_axes(f, "kernel", {1, int64_t{1} << 55, 1 << 20});
       },
       {"weight size: got [4, 3, 1, 36028797018963968, 1048576]"}},
      {"no constants",
       [](hid_t f) { H5Ldelete(f, "epilogue", H5P_DEFAULT); },
       {"group epilogue: got nothing"}},
      {"no shift",
       [](hid_t f) { remove_attribute(f, "epilogue", "shift"); },
       {"attribute shift: got nothing, need a number (/epilogue)"}},
      {"divisor 0",
       [](hid_t f) { write_integer(f, "epilogue", "divisor", 0); },
       {"attribute divisor: got 0"}},
      {"clamp",
       [](hid_t f) { write_integer(f, "epilogue", "clamp_min", 9); },
       {"attribute clamp_min: got 9, need at most clamp_max = 1.25"}},
      {"constant beyond float32",
       [](hid_t f) {
         const double huge = 1e300;
         write_attribute(f, "epilogue", "subtract", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {}, &huge);
       },
       {"attribute subtract: got 1e+300"}},
      {"soft link",
       [](hid_t f) {
         H5Ldelete(f, "bias", H5P_DEFAULT);
         H5Lcreate_soft("/weight", f, "bias", H5P_DEFAULT, H5P_DEFAULT);
       },
       {"bias: got a link to elsewhere"}},
      {"external link",
       [](hid_t f) {
         H5Ldelete(f, "bias", H5P_DEFAULT);
         H5Lcreate_external("/etc/passwd", "/", f, "bias", H5P_DEFAULT, H5P_DEFAULT);
       },
       {"bias: got a link to elsewhere"}},
      {"external data",
       [](hid_t f) {
         const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
         H5Pset_external(plist, "/etc/passwd", 0, 24);
         write_dataset(f, "bias", H5T_IEEE_F32LE, {6}, {}, plist);
         H5Pclose(plist);
       },
       {"storage: got data in other files"}},
      {"filter",
       [](hid_t f) {
         const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
         const hsize_t chunk[] = {6};
         H5Pset_chunk(plist, 1, chunk);
         H5Pset_nbit(plist);
         write_dataset(f, "bias", H5T_IEEE_F32LE, {6}, {}, plist);
         H5Pclose(plist);
       },
       {"filter: got 5"}},
      {"several",
       [](hid_t f) {
         H5Ldelete(f, "weight", H5P_DEFAULT);
         write_integer(f, ".", "format_version", 3);
         write_dataset(f, "bias", H5T_IEEE_F32LE, {2}, {1, 2});
         remove_attribute(f, "epilogue", "divisor");
         remove_attribute(f, ".", "format");
       },
       {"format_version: got 3", "dataset weight: got nothing", "shape of /bias: got [2], need [6]",
        "attribute divisor: got nothing", "attribute format: got nothing"}},
  };
  return *list;
}

TEST_F(Hdf5Foreign, EveryFaultIsNamedAndAllAtOnce) {
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    const Outcome outcome = changed(fault.make);
    EXPECT_EQ(outcome.status, VOLUP_STATUS_UNSUPPORTED);
    for (const char* word : fault.words) {
      EXPECT_NE(outcome.text.find(word), std::string::npos) << word << "\nin: " << outcome.text;
    }
    const auto faults_named = std::count(outcome.text.begin(), outcome.text.end(), ';') + 1;
    EXPECT_EQ(faults_named, static_cast<int64_t>(fault.words.size())) << outcome.text;
  }
}

TEST_F(Hdf5Foreign, AWeightBeyondFloat32IsAFault) {
  const Outcome outcome = changed([](hid_t file) {
    const std::vector<float> values(72, 1.0f);
    write_dataset(file, "weight", H5T_IEEE_F64LE, {4, 3, 1, 2, 3}, values);
    const hid_t dataset = H5Dopen2(file, "weight", H5P_DEFAULT);
    std::vector<double> wide(72, 1.0);
    wide[3] = 1e300;
    H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, wide.data());
    H5Dclose(dataset);
  });
  EXPECT_NE(outcome.text.find("values of /weight: got 1 beyond float32"), std::string::npos)
      << outcome.text;
}

// A few bytes that unpack to more than they can.
TEST_F(Hdf5Foreign, ClaimsThatTheFileCannotHoldAreRefusedBeforeMemoryIsTaken) {
  const Outcome outcome = changed([](hid_t file) {
    write_integer(file, "geometry", "in_channels", 1 << 20);
    write_integer(file, "geometry", "out_channels", 1 << 20);
    write_integer(file, "geometry", "groups", 1);
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1 << 10, 1 << 10, 1, 2, 3};
    H5Pset_chunk(plist, 5, chunk);
    H5Pset_deflate(plist, 9);
    write_dataset(file, "weight", H5T_IEEE_F32LE, {1 << 20, 1 << 20, 1, 2, 3}, {}, plist);
    H5Pclose(plist);
    H5Ldelete(file, "bias", H5P_DEFAULT);
  });
  EXPECT_EQ(outcome.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_NE(outcome.text.find("storage: got"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace volup::test
