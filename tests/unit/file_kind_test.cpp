// SPDX-License-Identifier: Apache-2.0
#include "load/file_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace volup {
namespace {

Result<FileKind> detect(const std::string& content) {
  return detect_file_kind(std::as_bytes(std::span(content.data(), content.size())));
}

TEST(FileKind, IsFoundFromTheContent) {
  const std::string hdf5("\x89HDF\r\n\x1a\n", 8);
  ASSERT_TRUE(detect(hdf5).ok());
  EXPECT_EQ(detect(hdf5)->name, "HDF5");
  EXPECT_EQ(detect(std::string(512, 'u') + hdf5)->name, "HDF5") << "a user block before it";
}

// A zip with empty entries of these names; cut: without its directory.
std::string zip(std::initializer_list<const char*> names, bool cut = false) {
  const auto little = [](size_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  };
  std::string local, directory;
  for (const std::string name : names) {
    const size_t offset = local.size();
    local += "PK\x03\x04" + std::string(22, '\0') + little(name.size(), 2) + little(0, 2) + name;
    directory += "PK\x01\x02" + std::string(24, '\0') + little(name.size(), 2) +
                 std::string(12, '\0') + little(offset, 4) + name;
  }
  if (cut) return local;
  return local + directory + "PK\x05\x06" + little(0, 4) + little(names.size(), 2) +
         little(names.size(), 2) + little(directory.size(), 4) + little(local.size(), 4) +
         little(0, 2);
}

TEST(FileKind, AZipIsWhatItsEntriesAre) {
  const auto name = [](const std::string& content) {
    const auto kind = detect(content);
    return kind.ok() ? std::string(kind->name) : kind.status().text();
  };
  EXPECT_EQ(name(zip({"m/data.pkl", "m/code/__torch__/a.py", "m/constants.pkl"})), "TorchScript");
  EXPECT_EQ(name(zip({"m/data.pkl", "m/byteorder", "m/data/0", "m/version"})),
            "PyTorch state_dict");
  // Cut short: what is left of the names decides, then what there is no better guess for.
  EXPECT_EQ(name(zip({"m/data.pkl", "m/data/0"}, true)), "PyTorch state_dict");
  EXPECT_EQ(name(zip({"m/data.pkl", "m/code/__torch__/a.py"}, true)), "TorchScript");
  EXPECT_EQ(name("PK\x03\x04 and more"), "TorchScript");
  const std::pair<std::string, const char*> others[] = {
      {zip({"metadata.json", "config.json", "model.weights.h5"}), "a Keras file of version 3"},
      {zip({"x.npy", "y.npy"}), "NumPy arrays (.npz)"},
      {zip({"m/data.pkl", "m/.data/extern_modules"}), "a torch.package archive"},
      {zip({"m/archive_format", "m/data/weights/0"}), "a torch.export archive"},
      {zip({"[Content_Types].xml", "word/document.xml"}), "an Office document"},
      {zip({"META-INF/MANIFEST.MF", "a.class"}), "a Java archive"},
      {zip({"readme.txt"}), "a zip archive of another program"},
      {zip({}), "an empty zip archive"},
  };
  for (const auto& [content, words] : others) {
    EXPECT_NE(name(content).find(words), std::string::npos) << name(content);
  }
}

TEST(FileKind, SafetensorsAndOnnxAreFoundByTheirForm) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string safetensors(1, static_cast<char>(header.size()));
  safetensors += std::string(7, '\0') + header + std::string(4, '\0');
  ASSERT_TRUE(detect(safetensors).ok());
  EXPECT_EQ(detect(safetensors)->name, "safetensors");
  EXPECT_EQ(detect(safetensors.substr(0, 20))->name, "safetensors") << "cut short";
  // ir_version 8, producer_name "pt", graph of 3 bytes, opset_import of 2.
  const std::string onnx("\x08\x08\x12\x02pt\x3a\x03\x0a\x01g\x42\x02\x10\x11", 15);
  ASSERT_TRUE(detect(onnx).ok()) << detect(onnx).status().text();
  EXPECT_EQ(detect(onnx)->name, "ONNX");
  EXPECT_EQ(detect(onnx.substr(0, 9))->name, "ONNX") << "cut short";
  EXPECT_FALSE(detect(onnx.substr(0, 6)).ok()) << "no graph";
}

TEST(FileKind, OtherFilesAreNamedForWhatTheyAre) {
  const std::pair<std::string, const char*> table[] = {
      {"", "an empty file"},
      {"hello world\n", "a text file"},
      {std::string("\x80\x02}q\x00", 5), "legacy pickle"},
      {std::string("\x93NUMPY\x01\x00", 8), "a NumPy array"},
      {std::string("\x7f") + "ELF\x02\x01", "an ELF program"},
      {std::string("\x01\x02\x00\x03", 4), "an unknown kind"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", "a legacy torch.save file"},
      {"\x80\x04\x95", "a pickle"},
      {"\x1f\x8b\x08", "a gzip stream"},
      {"BZh91AY", "a bzip2 stream"},
      {"\x28\xb5\x2f\xfd", "a Zstandard stream"},
      {"\xfd\x37zXZ", "an xz stream"},
      {"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
      {std::string(257, '\0') + "ustar", "a tar archive"},
      {std::string("ftrt\0\0", 6), "a TensorRT plan"},
      {std::string("GGUF\x03\0\0\0", 8), "a GGUF file"},
      {std::string("\x1c\0\0\0TFL3", 8), "a TensorFlow Lite model"},
      {"CDF\x01", "a netCDF file"},
      {"MATLAB 5.0 MAT-file, Platform", "a MATLAB file"},
      {std::string(128, '\0') + "DICM", "a DICOM image"},
      {std::string(344, '\0') + std::string("n+1\0", 4), "a NIfTI image"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"},
      {"<!DOCTYPE html><html>", "a web page"},
      {std::string("\x08\x01\x12\x02\x0a\x00", 6), "a TensorFlow SavedModel"},
      {std::string("\x0a\x02\x0a\x00\x22\x02\x08\x15", 8), "a TensorFlow graph"},
  };
  for (const auto& [content, words] : table) {
    const auto kind = detect(content);
    ASSERT_FALSE(kind.ok()) << words;
    EXPECT_EQ(kind.status().code(), VOLUP_STATUS_UNREADABLE);
    EXPECT_NE(kind.status().text().find(words), std::string::npos) << kind.status().text();
  }
}

}  // namespace
}  // namespace volup
