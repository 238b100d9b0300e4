// safetensors, the format of Hugging Face weights and of our checkpoints.
//
// The format: u64 length, JSON header {name: {dtype, shape, data_offsets}}, then the bytes of the
// tensors, which tile the rest of the file exactly. The reader trusts nothing: it checks each rule
// of the format before any allocation whose size comes from the file. It reads with pread, in
// pieces of any size.
//
// Files that we write hold a checksum of every tensor: "fpdt_xxh3" in the header's metadata has 16
// digits a tensor, in order of their bytes. Reading a whole tensor verifies its checksum.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"

namespace fpdt {

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

  // Reads elements [first, first + values.size()) of the flat tensor; F32, BF16, F16 and F64
  // convert to f32. Reading a whole tensor verifies it: InputError when its bytes differ from those
  // written.
  void read_f32(std::string_view name, std::int64_t first, std::span<float> values) const;

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  // Throws when `sum` covers the whole tensor and differs from the stored checksum.
  void require_intact(std::size_t index, std::int64_t elements, const Checksum& sum) const;

  RandomAccessFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::int64_t> offsets_;  // of each entry, from the start of the file
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::uint64_t> checksums_;  // of each entry; empty where the file has none
  std::uint64_t header_checksum_ = 0;
};

// The tensors of a file, or of a directory with model.safetensors or model.safetensors.index.json.
class SafetensorsSet {
 public:
  explicit SafetensorsSet(const std::string& path);

  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
  void read_f32(std::string_view name, std::int64_t first, std::span<float> values) const;

 private:
  void read_index(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

// Writes a file from a list known in advance and the tensors' values in that order, in pieces of
// any size. The file appears whole at `commit`. Entries are stored in the given order.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                    const std::map<std::string, std::string>& metadata = {});

  // Writes the next elements of the current tensor (F32, or rounded to BF16). A piece may span
  // tensors of one dtype.
  void write_f32(std::span<const float> values);
  // All tensors must be complete. Returns the checksum of the header.
  std::uint64_t commit();

 private:
  void write(std::span<const std::byte> bytes);
  void advance(std::int64_t elements);

  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::string header_;  // written with zeros for checksums, and again at the end
  Checksum sum_;        // of the current tensor
  std::size_t current_ = 0;
  std::int64_t written_ = 0;  // elements of the current tensor
};

}  // namespace fpdt
