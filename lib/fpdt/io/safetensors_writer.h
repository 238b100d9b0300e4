// Writes safetensors: a file, or several with an index when the tensors are too large for one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/safetensors.h"

namespace fpdt {

// The tensor bytes of a file, unless one tensor alone has more. transformers' `max_shard_size` has
// the same default, 5GB.
inline constexpr std::int64_t kShardBytes = 5'000'000'000;

// Writes a file from a list known in advance and the tensors' values in that order, in pieces of
// any size. The file appears whole at `commit`. Entries are stored in the given order.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                    const std::map<std::string, std::string>& metadata = {});

  // Writes the next elements of the current tensor (F32, or rounded to BF16). A piece may span
  // tensors.
  void write_f32(std::span<const float> values);
  // How many more elements it takes.
  [[nodiscard]] std::int64_t left() const { return left_; }
  // All tensors must be complete. Returns the checksum of the header.
  std::uint64_t commit();

 private:
  void write(std::span<const std::byte> bytes);
  void advance(std::int64_t elements);

  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::int64_t left_;   // elements of all tensors
  std::string header_;  // written with zeros for checksums, and again at the end
  Checksum sum_;        // of the current tensor
  std::size_t current_ = 0;
  std::int64_t written_ = 0;  // elements of the current tensor
};

// The names of the files of a set, as transformers writes them: "model.safetensors" if one file
// suffices, else "model-00001-of-00003.safetensors", ... and the index of the set.
std::vector<std::string> shard_names(std::string_view stem, std::size_t files);
std::string index_name(std::string_view stem);

// Writes tensors as SafetensorsWriter does, into a directory. They are cut into files by their
// order and size alone. One file at a time is open.
class ShardedWriter {
 public:
  ShardedWriter(std::string directory, std::string_view stem, std::vector<SafetensorsEntry> entries,
                std::map<std::string, std::string> metadata, std::int64_t shard_bytes);

  void write_f32(std::span<const float> values);
  // All tensors must be complete. Writes the index, if there are several files. Returns the
  // checksums of their headers.
  std::vector<std::uint64_t> commit();

 private:
  void open();
  void next();
  [[nodiscard]] std::string print_index() const;

  std::string directory_, stem_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::vector<SafetensorsEntry>> shards_;
  std::vector<std::string> names_;           // of their files
  std::optional<SafetensorsWriter> writer_;  // of the file that is being written
  std::vector<std::uint64_t> headers_;       // of the files before it
};

}  // namespace fpdt
