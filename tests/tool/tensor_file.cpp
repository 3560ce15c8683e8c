// SPDX-License-Identifier: Apache-2.0
//
// See tensor_file.h.
#include "tensor_file.h"

#include <hdf5.h>

#include <stdexcept>

namespace volup::test {
namespace {

namespace fs = std::filesystem;

hid_t checked(hid_t id, const std::string& what) {
  if (id < 0) throw std::runtime_error("test file: " + what);
  return id;
}

hid_t open_or_create(const fs::path& file) {
  const hid_t id = fs::exists(file)
                       ? H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                       : H5Fcreate(file.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  return checked(id, file.string());
}

hid_t stored_type(Stored stored) {
  switch (stored) {
    case Stored::kFloat32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case Stored::kFloat64:
      return H5Tcopy(H5T_IEEE_F64LE);
    case Stored::kInt16:
      return H5Tcopy(H5T_STD_I16LE);
    case Stored::kString:
      return H5Tcopy(H5T_C_S1);
  }
  return H5I_INVALID_HID;
}

}  // namespace

void put_tensor(const fs::path& file, const std::string& dataset, const TensorData& tensor,
                Stored stored) {
  const hid_t id = open_or_create(file);
  const hid_t space =
      H5Screate_simple(static_cast<int>(tensor.shape.size()),
                       reinterpret_cast<const hsize_t*>(tensor.shape.data()), nullptr);
  const hid_t type = stored_type(stored);
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  const hid_t data = checked(
      H5Dcreate2(id, dataset.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT), dataset);
  if (stored != Stored::kString && !tensor.values.empty()) {
    H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.values.data());
  }
  H5Dclose(data);
  H5Pclose(links);
  H5Tclose(type);
  H5Sclose(space);
  H5Fclose(id);
}

TensorData get_tensor(const fs::path& file, const std::string& dataset) {
  const hid_t id = checked(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), file.string());
  const hid_t data = checked(H5Dopen2(id, dataset.c_str(), H5P_DEFAULT), dataset);
  const hid_t space = H5Dget_space(data);
  TensorData tensor;
  tensor.shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, reinterpret_cast<hsize_t*>(tensor.shape.data()), nullptr);
  tensor.values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.values.data());
  H5Sclose(space);
  H5Dclose(data);
  H5Fclose(id);
  return tensor;
}

bool is_float32(const fs::path& file, const std::string& dataset) {
  const hid_t id = checked(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), file.string());
  const hid_t data = checked(H5Dopen2(id, dataset.c_str(), H5P_DEFAULT), dataset);
  const hid_t type = H5Dget_type(data);
  const bool equal = H5Tequal(type, H5T_IEEE_F32LE) > 0;
  H5Tclose(type);
  H5Dclose(data);
  H5Fclose(id);
  return equal;
}

std::vector<std::string> dataset_names(const fs::path& file) {
  const hid_t id = checked(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), file.string());
  H5G_info_t group{};
  H5Gget_info(id, &group);
  std::vector<std::string> names;
  for (hsize_t i = 0; i < group.nlinks; ++i) {
    char name[256];
    H5Lget_name_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
    names.emplace_back(name);
  }
  H5Fclose(id);
  return names;
}

void put_attribute(const fs::path& file, const std::string& name,
                   const std::vector<double>& values) {
  const hid_t id = open_or_create(file);
  const hsize_t count = values.size();
  const hid_t space = count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
  if (H5Aexists(id, name.c_str()) > 0) H5Adelete(id, name.c_str());
  const hid_t attribute =
      checked(H5Acreate2(id, name.c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT), name);
  H5Awrite(attribute, H5T_NATIVE_DOUBLE, values.data());
  H5Aclose(attribute);
  H5Sclose(space);
  H5Fclose(id);
}

std::string get_text(const fs::path& file, const std::string& name) {
  const hid_t id = checked(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), file.string());
  std::string text;
  if (H5Aexists(id, name.c_str()) > 0) {
    const hid_t attribute = H5Aopen(id, name.c_str(), H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute);
    if (H5Tis_variable_str(type) > 0) {
      char* value = nullptr;
      H5Aread(attribute, type, &value);
      if (value != nullptr) text = value;
      H5free_memory(value);
    } else {
      text.resize(H5Tget_size(type));
      H5Aread(attribute, type, text.data());
      text = text.c_str();
    }
    H5Tclose(type);
    H5Aclose(attribute);
  }
  H5Fclose(id);
  return text;
}

double get_number(const fs::path& file, const std::string& name) {
  const hid_t id = checked(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), file.string());
  double value = 0;
  if (H5Aexists(id, name.c_str()) > 0) {
    const hid_t attribute = H5Aopen(id, name.c_str(), H5P_DEFAULT);
    H5Aread(attribute, H5T_NATIVE_DOUBLE, &value);
    H5Aclose(attribute);
  }
  H5Fclose(id);
  return value;
}

}  // namespace volup::test
