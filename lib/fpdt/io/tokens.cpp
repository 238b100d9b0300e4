// Formats by their magic or name, and ids by position.
#include "fpdt/io/tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"

namespace fpdt {
namespace {

constexpr std::size_t kLlmcHeaderWords = 256;
constexpr std::int64_t kLlmcHeaderBytes = 4 * kLlmcHeaderWords;
constexpr std::size_t kPieceTokens = 1 << 16;

// llm.c dev/data/data_common.py: GPT-2 ids as u16, Llama 3 ids as u32.
struct LlmcVariant {
  std::int32_t magic, version;
  std::int64_t token_bytes;
};
constexpr std::array<LlmcVariant, 2> kLlmcVariants{{{20240520, 1, 2}, {20240801, 7, 4}}};

// nullptr when the file does not begin with a magic of llm.c.
const LlmcVariant* llmc_variant(const RandomAccessFile& file) {
  std::int32_t magic = 0;
  if (file.size() < kLlmcHeaderBytes) return nullptr;
  file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  for (const LlmcVariant& variant : kLlmcVariants) {
    if (variant.magic == magic) return &variant;
  }
  return nullptr;
}

TokenFormat sniff(const RandomAccessFile& file) {
  if (llmc_variant(file) != nullptr) return TokenFormat::llmc;
  const std::string extension = std::filesystem::path(file.path()).extension().string();
  if (extension == ".u16") return TokenFormat::u16;
  if (extension == ".u32") return TokenFormat::u32;
  if (extension != ".bin") return TokenFormat::text;
  throw InputError(fmt::format(
      "{}: expected a token file of llm.c; for raw tokens say whether they are u16 or u32",
      file.path()));
}

// Count of tokens in an llm.c file, whose size must agree.
std::int64_t llmc_count(const RandomAccessFile& file, std::int64_t& token_bytes) {
  const LlmcVariant* variant = llmc_variant(file);
  if (variant == nullptr) {
    throw InputError(
        fmt::format("{}: expected the magic of llm.c, 20240520 or 20240801", file.path()));
  }
  std::array<std::int32_t, 3> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (header[1] != variant->version) {
    throw InputError(fmt::format("{}: expected version {} after magic {}, found {}", file.path(),
                                 variant->version, variant->magic, header[1]));
  }
  token_bytes = variant->token_bytes;
  const std::int64_t expected = kLlmcHeaderBytes + token_bytes * header[2];
  if (header[2] < 0 || file.size() != expected) {
    throw InputError(fmt::format("{}: {} tokens make {} bytes, the file has {}", file.path(),
                                 header[2], expected, file.size()));
  }
  return header[2];
}

}  // namespace

std::string_view word(TokenFormat format) {
  constexpr std::array<std::string_view, 5> words{"sniff", "text", "u16", "u32", "llmc"};
  return words[static_cast<std::size_t>(format)];
}

TokenFile::TokenFile(const std::string& path, std::int64_t vocabulary, TokenFormat format)
    : file_(path), vocabulary_(vocabulary) {
  if (format == TokenFormat::sniff) format = sniff(file_);
  if (format == TokenFormat::llmc) {
    count_ = llmc_count(file_, token_bytes_);
    begin_ = kLlmcHeaderBytes;
  } else {
    token_bytes_ = format == TokenFormat::text ? 1 : format == TokenFormat::u16 ? 2 : 4;
    count_ = file_.size() / token_bytes_;
    if (file_.size() % token_bytes_ != 0) {
      throw InputError(fmt::format("{}: expected whole tokens of {} bytes, found {} bytes", path,
                                   token_bytes_, file_.size()));
    }
  }
  if (count_ == 0) throw InputError(fmt::format("{}: holds no tokens", path));
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  FPDT_ASSERT(first >= 0 && first + std::ssize(tokens) <= count_);
  const auto width = static_cast<std::size_t>(token_bytes_);
  std::vector<std::byte> piece(std::min(tokens.size(), kPieceTokens) * width);
  while (!tokens.empty()) {
    const std::size_t now = std::min(tokens.size(), kPieceTokens);
    file_.read(begin_ + first * token_bytes_, std::span(piece).first(now * width));
    for (std::size_t i = 0; i < now; ++i) {
      std::uint32_t id = 0;
      std::memcpy(&id, piece.data() + i * width, width);
      if (id >= vocabulary_) {
        throw InputError(
            fmt::format("{}: token {} has id {}, expected less than the vocabulary, {}", path(),
                        first + static_cast<std::int64_t>(i), id, vocabulary_));
      }
      tokens[i] = static_cast<std::int32_t>(id);
    }
    tokens = tokens.subspan(now);
    first += static_cast<std::int64_t>(now);
  }
}

void document_starts(std::span<const std::int32_t> tokens, std::int32_t separator,
                     std::span<std::int32_t> starts) {
  FPDT_ASSERT(tokens.size() == starts.size());
  std::int32_t start = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    starts[i] = start;
    if (separator >= 0 && tokens[i] == separator) start = static_cast<std::int32_t>(i + 1);
  }
}

}  // namespace fpdt
