// The header comes first in a file and its checksums are known last, so it is written twice.
#include "fpdt/io/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

// The beginning of a header; the digits follow.
constexpr std::string_view kBeforeChecksums = R"({"__metadata__":{"fpdt_xxh3":")";
static_assert(kBeforeChecksums.find(kChecksumsKey) != std::string_view::npos);

// Rounds to nearest even; a NaN stays a NaN.
std::uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

std::string print_header(const std::vector<SafetensorsEntry>& entries,
                         const std::map<std::string, std::string>& metadata) {
  std::string header(kBeforeChecksums);
  header += std::string(entries.size() * kChecksumDigits, '0') + '"';
  for (const auto& [key, value] : metadata) {
    header += fmt::format(",{}:{}", json_string(key), json_string(value));
  }
  header += "}";
  std::int64_t begin = 0;
  for (const SafetensorsEntry& entry : entries) {
    header += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          json_string(entry.name), entry.dtype, fmt::join(entry.shape, ","), begin,
                          add(begin, entry.bytes()));
    begin += entry.bytes();
  }
  header += "}";
  header.resize(index(round_up(static_cast<std::int64_t>(header.size()), 8)), ' ');
  return header;
}

std::int64_t elements_of(const std::vector<SafetensorsEntry>& entries) {
  std::int64_t elements = 0;
  for (const SafetensorsEntry& entry : entries) elements = add(elements, entry.elements());
  return elements;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path),
      entries_(std::move(entries)),
      left_(elements_of(entries_)),
      header_(print_header(entries_, metadata)) {
  const std::uint64_t length = header_.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header_);
  advance(0);
}

// Counts the elements as written and moves to the next tensor that is not empty.
void SafetensorsWriter::advance(std::int64_t elements) {
  written_ += elements;
  left_ -= elements;
  while (current_ < entries_.size() && written_ == entries_[current_].elements()) {
    const std::string digits = checksum_digits(sum_.value());
    header_.replace(kBeforeChecksums.size() + current_ * kChecksumDigits, kChecksumDigits, digits);
    sum_.reset();
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  sum_.add(bytes);
}

void SafetensorsWriter::write_f32(std::span<const float> values) {
  std::vector<std::uint16_t> rounded;
  while (!values.empty()) {
    FPDT_ASSERT(current_ < entries_.size());
    const SafetensorsEntry& entry = entries_[current_];
    const auto left = index(entry.elements() - written_);
    const std::span<const float> piece =
        values.first(std::min({values.size(), left, index(kRunElements)}));
    if (entry.dtype == "F32") {
      write(std::as_bytes(piece));
    } else {
      FPDT_ASSERT(entry.dtype == "BF16");
      rounded.resize(piece.size());
      std::transform(piece.begin(), piece.end(), rounded.begin(), float_to_bfloat);
      write(std::as_bytes(std::span(rounded)));
    }
    advance(static_cast<std::int64_t>(piece.size()));
    values = values.subspan(piece.size());
  }
}

std::uint64_t SafetensorsWriter::commit() {
  FPDT_ASSERT(current_ == entries_.size());
  file_.overwrite(sizeof(std::uint64_t), std::as_bytes(std::span(header_)));
  file_.commit();
  return checksum(header_);
}

std::vector<std::string> shard_names(std::string_view stem, std::size_t files) {
  if (files == 1) return {fmt::format("{}.safetensors", stem)};
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= files; ++i) {
    names.push_back(fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i, files));
  }
  return names;
}

std::string index_name(std::string_view stem) {
  return fmt::format("{}.safetensors.index.json", stem);
}

ShardedWriter::ShardedWriter(std::string directory, std::string_view stem,
                             std::vector<SafetensorsEntry> entries,
                             std::map<std::string, std::string> metadata, std::int64_t shard_bytes)
    : directory_(std::move(directory)), stem_(stem), metadata_(std::move(metadata)), shards_(1) {
  std::int64_t bytes = 0;
  for (SafetensorsEntry& entry : entries) {
    bytes = add(bytes, entry.bytes());
    if (bytes > shard_bytes && !shards_.back().empty()) {
      shards_.emplace_back();
      bytes = entry.bytes();
    }
    shards_.back().push_back(std::move(entry));
  }
  names_ = shard_names(stem_, shards_.size());
  open();
}

void ShardedWriter::open() {
  const std::size_t next = headers_.size();
  FPDT_ASSERT(next < shards_.size());
  writer_.emplace(fmt::format("{}/{}", directory_, names_[next]), shards_[next], metadata_);
}

void ShardedWriter::next() {
  headers_.push_back(writer_->commit());
  open();
}

void ShardedWriter::write_f32(std::span<const float> values) {
  while (!values.empty()) {
    while (writer_->left() == 0) next();
    const auto piece = values.first(std::min(values.size(), index(writer_->left())));
    writer_->write_f32(piece);
    values = values.subspan(piece.size());
  }
}

// Printed as transformers prints it: indented by two, keys in order.
std::string ShardedWriter::print_index() const {
  std::int64_t bytes = 0;
  std::map<std::string, std::string> file_of;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    for (const SafetensorsEntry& entry : shards_[i]) {
      bytes = add(bytes, entry.bytes());
      file_of[entry.name] = names_[i];
    }
  }
  std::string lines;
  for (const auto& [name, file] : file_of) {
    lines += fmt::format("{}\n    {}: {}", lines.empty() ? "" : ",", json_string(name),
                         json_string(file));
  }
  return fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n",
      bytes, lines);
}

std::vector<std::uint64_t> ShardedWriter::commit() {
  while (headers_.size() + 1 < shards_.size()) next();
  headers_.push_back(writer_->commit());
  if (shards_.size() > 1) {
    write_file_atomically(fmt::format("{}/{}", directory_, index_name(stem_)), print_index());
  }
  return headers_;
}

}  // namespace fpdt
