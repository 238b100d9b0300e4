// The rules of the format, in the order in which they are checked.
#include "fpdt/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// Python's safetensors stops at 100 MB; a header of our families has a few hundred KiB.
constexpr std::int64_t kHeaderBytesMax = 8 << 20;
constexpr std::size_t kNameBytesMax = 512;
constexpr std::size_t kRunBytes = kRunElements * sizeof(float);

struct DtypeSize {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<DtypeSize, 17> kDtypes{{{"F64", 8},
                                             {"F32", 4},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I64", 8},
                                             {"I32", 4},
                                             {"I16", 2},
                                             {"I8", 1},
                                             {"U64", 8},
                                             {"U32", 4},
                                             {"U16", 2},
                                             {"U8", 1},
                                             {"BOOL", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E8M0", 1},
                                             {"C64", 8}}};

// Bytes of an element; 0 for unknown types, which include the sub-byte types on purpose.
std::int64_t dtype_size(std::string_view dtype) {
  for (const DtypeSize& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return 0;
}

struct Placed {
  SafetensorsEntry entry;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Bytes of a shape, or -1 when the product overflows.
std::int64_t checked_bytes(const SafetensorsEntry& entry) {
  std::int64_t bytes = dtype_size(entry.dtype);
  std::int64_t elements = 1;
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return __builtin_mul_overflow(elements, bytes, &bytes) ? -1 : bytes;
}

bool read_sizes(const Node* node, std::vector<std::int64_t>& values) {
  if (node == nullptr || node->kind != NodeKind::list) return false;
  for (const Node& item : node->items) {
    if (!convert(item, values.emplace_back()) || values.back() < 0) return false;
  }
  return true;
}

// Rules 4 and 5: an entry has exactly dtype, shape and data_offsets, and their sizes agree.
Placed read_entry(const Node& node, FileFindings& findings) {
  Placed placed;
  placed.entry.name = node.key;
  Fields fields(node, node.key, findings);
  fields.required("dtype", placed.entry.dtype);
  std::vector<std::int64_t> offsets;
  const bool shape_is_good = read_sizes(fields.find("shape"), placed.entry.shape);
  const bool offsets_are_good =
      read_sizes(fields.find("data_offsets"), offsets) && offsets.size() == 2;
  fields.done();
  const auto wrong = [&](std::string_view what) {
    findings.add("T102", node, fmt::format("{}: {}", node.key.substr(0, kNameBytesMax), what));
  };
  if (node.key.empty() || node.key.size() > kNameBytesMax)
    wrong("expected a name of 1 to 512 bytes");
  if (!shape_is_good) wrong("shape: expected a list of sizes");
  if (!offsets_are_good) wrong("data_offsets: expected [begin, end]");
  if (!shape_is_good || !offsets_are_good) return placed;
  placed.begin = offsets[0];
  placed.end = offsets[1];
  const std::int64_t bytes = checked_bytes(placed.entry);
  if (dtype_size(placed.entry.dtype) == 0) {
    wrong(fmt::format("dtype \"{}\" is not supported", placed.entry.dtype));
  } else if (placed.begin > placed.end || placed.end - placed.begin != bytes) {
    wrong(fmt::format("data_offsets [{}, {}] do not hold the {} bytes of the shape", placed.begin,
                      placed.end, bytes < 0 ? "overflowing" : std::to_string(bytes)));
  }
  return placed;
}

// Rule 6: tensors, sorted by offset, tile the data without a hole, an overlap or a rest.
void check_tiling(std::vector<Placed>& tensors, std::int64_t data_bytes, FileFindings& findings) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::int64_t end = 0;
  for (const Placed& tensor : tensors) {
    if (tensor.begin != end) {
      findings.add("T102", 0, 0,
                   fmt::format("{}: begins at byte {} of the data, expected {}", tensor.entry.name,
                               tensor.begin, end));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    findings.add(
        "T101", 0, 0,
        fmt::format("the tensors hold {} bytes, the file {} after its header", end, data_bytes));
  }
}

void read_metadata(const Node& node, std::map<std::string, std::string>& metadata,
                   FileFindings& findings) {
  Fields fields(node, "__metadata__", findings);
  for (const Node& item : node.items) {
    if (!convert(item, metadata[item.key])) fields.wrong(item, item.key, "a text");
  }
}

// Checksums of 16 digits a tensor, in order of offsets; empty for files from other writers.
std::vector<std::uint64_t> read_checksums(const std::map<std::string, std::string>& metadata,
                                          std::size_t tensors, FileFindings& findings) {
  const auto found = metadata.find(std::string(kChecksumsKey));
  if (found == metadata.end()) return {};
  std::vector<std::uint64_t> sums(tensors);
  const std::string& digits = found->second;
  bool good = digits.size() == tensors * kChecksumDigits;
  for (std::size_t i = 0; good && i < tensors; ++i) {
    const char* const first = digits.data() + i * kChecksumDigits;
    const char* const last = first + kChecksumDigits;
    const auto [end, error] = std::from_chars(first, last, sums[i], 16);
    good = error == std::errc{} && end == last;
  }
  if (!good) {
    findings.add("T102", 0, 0,
                 fmt::format("__metadata__.{}: expected {} hexadecimal digits for each of {} "
                             "tensors",
                             kChecksumsKey, kChecksumDigits, tensors));
  }
  return sums;
}

// Rules 1 and 2: the length in the first eight bytes, and the header.
std::string read_header(const RandomAccessFile& file, FileFindings& findings) {
  std::uint64_t length = 0;
  const std::int64_t rest = file.size() - std::int64_t{sizeof length};
  if (rest >= 0) file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (rest < 0 || length > static_cast<std::uint64_t>(rest) || length > kHeaderBytesMax) {
    findings.add("T101", 0, 0,
                 fmt::format("not a safetensors file: {} bytes with a header of {} (at most {})",
                             file.size(), length, kHeaderBytesMax));
    findings.raise();
  }
  std::string header(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) {
    findings.add("T101", 0, 0, "expected the header to begin with {");
    findings.raise();
  }
  return header;
}

// E4M3 of Micikevicius et al., arXiv 2209.05433: 4 bits of exponent, 3 of mantissa, no infinity.
std::array<float, 256> e4m3_numbers() {
  std::array<float, 256> numbers{};
  for (int bits = 0; bits < 128; ++bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    const auto significand = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa);
    const float magnitude = bits == 127 ? std::numeric_limits<float>::quiet_NaN()
                                        : std::ldexp(significand, std::max(exponent, 1) - 10);
    numbers[static_cast<std::size_t>(bits)] = magnitude;
    numbers[static_cast<std::size_t>(128 + bits)] = -magnitude;
  }
  return numbers;
}

float e4m3_to_float(std::uint8_t bits) {
  static const std::array<float, 256> numbers = e4m3_numbers();
  return numbers[bits];
}

// Converts IEEE 754 half precision, field by field.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;  // bias 15 to bias 127
  return std::bit_cast<float>(sign | (wide << 23U) | (mantissa << 13U));
}

float bfloat_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

float double_to_float(double value) { return static_cast<float>(value); }

// Both readers go run by run and add each run to the checksum, if there is one.
void read_as_stored(const RandomAccessFile& file, std::int64_t offset, std::span<std::byte> bytes,
                    Checksum* sum) {
  while (!bytes.empty()) {
    const auto run = bytes.first(std::min(bytes.size(), kRunBytes));
    file.read(offset, run);
    if (sum != nullptr) sum->add(run);
    offset += static_cast<std::int64_t>(run.size());
    bytes = bytes.subspan(run.size());
  }
}

// values = convert(stored elements from `offset`).
template <class Stored, class Convert>
void read_converted(const RandomAccessFile& file, std::int64_t offset, std::span<float> values,
                    Checksum* sum, Convert convert_one) {
  std::vector<Stored> run(std::min(values.size(), index(kRunElements)));
  while (!values.empty()) {
    const std::span<Stored> now(run.data(), std::min(values.size(), run.size()));
    file.read(offset, std::as_writable_bytes(now));
    if (sum != nullptr) sum->add(std::as_bytes(now));
    std::transform(now.begin(), now.end(), values.begin(), convert_one);
    offset += static_cast<std::int64_t>(now.size_bytes());
    values = values.subspan(now.size());
  }
}

}  // namespace

std::int64_t SafetensorsEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, mul);
}

std::int64_t SafetensorsEntry::bytes() const { return mul(elements(), dtype_size(dtype)); }

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  FileFindings findings(path);
  const std::string header = read_header(file_, findings);
  // A tensor has eight values, and more bytes than that.
  const auto values = static_cast<std::int64_t>(header.size() / 8);
  const Node root = parse_json(header, findings, std::max(kJsonValuesMax, values));
  findings.raise();  // duplicate names
  std::vector<Placed> tensors;
  for (const Node& item : root.items) {
    if (item.key == "__metadata__") {
      read_metadata(item, metadata_, findings);
    } else {
      tensors.push_back(read_entry(item, findings));
    }
  }
  checksums_ = read_checksums(metadata_, tensors.size(), findings);
  findings.raise();
  header_checksum_ = checksum(header);
  const auto data_first = static_cast<std::int64_t>(sizeof(std::uint64_t) + header.size());
  check_tiling(tensors, file_.size() - data_first, findings);
  findings.raise();
  for (Placed& tensor : tensors) {
    index_[tensor.entry.name] = entries_.size();
    offsets_.push_back(data_first + tensor.begin);
    entries_.push_back(std::move(tensor.entry));
  }
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::size_t SafetensorsFile::index_of(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw InputError(fmt::format("{}: no tensor \"{}\"", path(), name));
  return found->second;
}

void SafetensorsFile::require_intact(std::size_t index, const Checksum& sum) const {
  if (checksums_.empty() || sum.value() == checksums_[index]) return;
  throw InputError(
      fmt::format("{}: {}: the bytes have the checksum {}, expected {}: the file was damaged or "
                  "changed after it was written [T104]",
                  path(), entries_[index].name, checksum_digits(sum.value()),
                  checksum_digits(checksums_[index])));
}

void SafetensorsFile::read(std::size_t index, std::int64_t first, std::span<float> values,
                           Checksum* sum) const {
  const SafetensorsEntry& entry = entries_[index];
  FPDT_ASSERT(first >= 0 && first + std::ssize(values) <= entry.elements());
  const std::int64_t offset = offsets_[index] + first * dtype_size(entry.dtype);
  if (entry.dtype == "F32") {
    read_as_stored(file_, offset, std::as_writable_bytes(values), sum);
  } else if (entry.dtype == "BF16") {
    read_converted<std::uint16_t>(file_, offset, values, sum, bfloat_to_float);
  } else if (entry.dtype == "F16") {
    read_converted<std::uint16_t>(file_, offset, values, sum, half_to_float);
  } else if (entry.dtype == "F64") {
    read_converted<double>(file_, offset, values, sum, double_to_float);
  } else if (entry.dtype == kF8) {
    read_converted<std::uint8_t>(file_, offset, values, sum, e4m3_to_float);
  } else {
    throw InputError(fmt::format("{}: {}: expected F32, BF16, F16, F64 or {}, found {}", path(),
                                 entry.name, kF8, entry.dtype));
  }
}

void SafetensorsFile::read_f32(std::string_view name, std::int64_t first,
                               std::span<float> values) const {
  read(index_of(name), first, values, nullptr);
}

void SafetensorsFile::read_bytes(std::string_view name, std::int64_t first,
                                 std::span<std::byte> bytes) const {
  const std::size_t index = index_of(name);
  const SafetensorsEntry& entry = entries_[index];
  if (entry.dtype != "U8") {
    throw InputError(fmt::format("{}: {}: expected U8, found {}", path(), entry.name, entry.dtype));
  }
  FPDT_ASSERT(first >= 0 && first + std::ssize(bytes) <= entry.elements());
  read_as_stored(file_, offsets_[index] + first, bytes, nullptr);
}

void SafetensorsFile::stream_f32(std::string_view name, const TensorSink& sink) const {
  const std::size_t index = index_of(name);
  const std::int64_t elements = entries_[index].elements();
  std::vector<float> values(static_cast<std::size_t>(std::min(elements, kStreamElements)));
  Checksum sum;
  for (std::int64_t first = 0; first < elements; first += kStreamElements) {
    const auto piece = std::span(values).first(
        static_cast<std::size_t>(std::min(elements - first, kStreamElements)));
    read(index, first, piece, &sum);
    sink(first, piece);
  }
  require_intact(index, sum);
}

void SafetensorsFile::verify(std::string_view name) const {
  const std::size_t index = index_of(name);
  if (checksums_.empty()) return;
  std::vector<std::byte> bytes(kRunBytes);
  Checksum sum;
  const std::int64_t end = offsets_[index] + entries_[index].bytes();
  for (std::int64_t at = offsets_[index]; at < end; at += std::ssize(bytes)) {
    read_as_stored(
        file_, at,
        std::span(bytes).first(std::min(bytes.size(), static_cast<std::size_t>(end - at))), &sum);
  }
  require_intact(index, sum);
}

}  // namespace fpdt
