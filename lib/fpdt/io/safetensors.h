// safetensors, the format of Hugging Face weights and of our checkpoints.
//
// The format: u64 length, JSON header {name: {dtype, shape, data_offsets}}, then the bytes of the
// tensors, which tile the rest of the file exactly. The reader trusts nothing: it checks each rule
// of the format before any allocation whose size comes from the file. It reads with pread, in
// pieces of bounded size.
//
// Files that we write (safetensors_writer.h) hold a checksum of every tensor: "fpdt_xxh3" in the
// header's metadata has 16 digits a tensor, in order of their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"
#include "fpdt/spec/checkpoint_bytes.h"

namespace fpdt {

inline constexpr std::string_view kChecksumsKey = "fpdt_xxh3";

// Takes the pieces of a tensor in order, each of at most kStreamElements; `first` is the first
// element of the piece.
using TensorSink = std::function<void(std::int64_t first, std::span<const float> values)>;

// The type of numbers of 8 bits that can be read.
inline constexpr std::string_view kF8 = "F8_E4M3";

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F16", "I32", ...
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const;
};

// One safetensors file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  // Entries in order of their bytes.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr when there is no such tensor.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;

  // The checksum of the header, which holds the tensors' checksums: two files with the same value
  // have the same contents.
  [[nodiscard]] std::uint64_t header_checksum() const { return header_checksum_; }

  // Reads elements [first, first + values.size()) of the flat tensor; F32, BF16, F16, F64 and kF8
  // convert to f32. Compares no checksum.
  void read_f32(std::string_view name, std::int64_t first, std::span<float> values) const;
  // Reads bytes [first, first + bytes.size()) of a tensor of U8. Compares no checksum.
  void read_bytes(std::string_view name, std::int64_t first, std::span<std::byte> bytes) const;
  // Hands the whole tensor to `sink` and then compares its checksum. Throws InputError when its
  // bytes differ from those written.
  void stream_f32(std::string_view name, const TensorSink& sink) const;
  // Compares the checksum of a tensor: reads all of its bytes. InputError as above.
  void verify(std::string_view name) const;

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  // Reads elements, and adds their bytes to `sum` if it is not null.
  void read(std::size_t index, std::int64_t first, std::span<float> values, Checksum* sum) const;
  // Throws when the sum of a whole tensor differs from the stored one.
  void require_intact(std::size_t index, const Checksum& sum) const;

  RandomAccessFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::int64_t> offsets_;  // of each entry, from the start of the file
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::uint64_t> checksums_;  // of each entry; empty where the file has none
  std::uint64_t header_checksum_ = 0;
};

// Whether a directory has the files of which a SafetensorsSet is made.
bool has_safetensors(const std::string& directory);

// The tensors of a file, or of the files that an index names.
class SafetensorsSet {
 public:
  // A file, or a directory with model.safetensors or model.safetensors.index.json.
  explicit SafetensorsSet(const std::string& path);
  // `locate` returns the path of a file that the index names.
  using Locate = std::function<std::string(const std::string& name)>;
  SafetensorsSet(const std::string& index, const Locate& locate);

  // The file, directory or index that was opened.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
  // The file that holds the tensor. Throws InputError when there is none.
  [[nodiscard]] const SafetensorsFile& file_of(std::string_view name) const;

 private:
  void read_index(const std::string& path, const Locate& locate);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

}  // namespace fpdt
