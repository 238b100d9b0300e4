// Weights of fewer bits, as published models have them, against their definitions.
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"

#include "hf_weights_case.h"
#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

// A file of one tensor after another, each of zeros unless `bytes_of` says otherwise.
void write_raw(const std::string& path, const std::vector<SafetensorsEntry>& entries,
               const std::function<std::string(const SafetensorsEntry&)>& bytes_of) {
  std::string header, data;
  for (const SafetensorsEntry& entry : entries) {
    const std::string bytes = bytes_of(entry);
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", entry.name, entry.dtype,
                          fmt::join(entry.shape, ","), data.size(), data.size() + bytes.size());
    data += bytes;
  }
  header += "}";
  std::string length;
  for (std::size_t i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  write_file_atomically(path, length + header + data);
}

// gpt-oss as it is published: codes of 4 bits, and an exponent for 32 of them. Every code and
// several exponents occur, and no place is like its neighbours.
TEST(HfWeights, DecodesMxfp4) {
  ModelSpec model = load_model(source_path("tests/fixtures/hf/gpt_oss"));
  model.hidden = 64;
  model.feed_forward = 32;
  model.experts = 3;
  constexpr std::array<double, 8> kMagnitudes{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto code = [](std::int64_t element) { return (element * 7 + element / 16) % 16; };
  const auto exponent = [](std::int64_t block) { return 120 + block * 5 % 11; };
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<HfPiece> pieces = hf_pieces(model, tensor.name);
    for (const HfPiece* piece : distinct(pieces)) {
      const auto& shape = piece->hf_shape;
      if (shape.size() < 3) {
        entries.push_back({piece->name, "F32", shape});
        continue;
      }
      entries.push_back({piece->name + "_blocks", "U8", {shape[0], shape[2], shape[1] / 32, 16}});
      entries.push_back({piece->name + "_scales", "U8", {shape[0], shape[2], shape[1] / 32}});
    }
  }
  const ScratchDirectory scratch;
  write_raw(scratch.file("model.safetensors"), entries, [&](const SafetensorsEntry& entry) {
    std::string bytes(static_cast<std::size_t>(entry.bytes()), '\0');
    for (std::int64_t i = 0; i < std::ssize(bytes) && entry.dtype == "U8"; ++i) {
      const bool blocks = entry.name.ends_with("_blocks");
      bytes[static_cast<std::size_t>(i)] =
          static_cast<char>(blocks ? code(2 * i) + 16 * code(2 * i + 1) : exponent(i));
    }
    return bytes;
  });
  const HfWeights weights = open_weights(scratch.path(), model);
  for (const auto& [name, rows, width, step] :
       {std::tuple("layers.1.up.weight", 64, 64, 2), {"layers.1.down.weight", 64, 32, 1}}) {
    const std::vector<float> found = whole(weights, name);
    ASSERT_EQ(std::ssize(found), 3 * rows * width);
    for (std::int64_t i = 0; i < std::ssize(found); ++i) {
      const std::int64_t expert = i / (rows * width), row = i / width % rows;
      // Gate rows are the even ones of an expert, up rows the odd ones.
      const std::int64_t half = rows / 2;
      const std::int64_t out = step == 1 ? row : row < half ? 2 * row : 2 * (row - half) + 1;
      const std::int64_t at = (expert * rows + out) * width + i % width;
      const double sign = code(at) < 8 ? 1 : -1;
      EXPECT_EQ(static_cast<double>(found[static_cast<std::size_t>(i)]),
                sign * kMagnitudes[static_cast<std::size_t>(code(at) % 8)] *
                    std::exp2(exponent(at / 32) - 127))
          << name << " " << i;
    }
    std::vector<float> part(100);
    weights.read(name, 77, part);
    EXPECT_EQ(part, std::vector<float>(found.begin() + 77, found.begin() + 177));
  }
  model.hidden = 48;
  EXPECT_THAT(input_error([&] { const HfWeights wrong = open_weights(scratch.path(), model); }),
              HasSubstr("48 inputs are no whole blocks of 32"));
}

// MiniMax-M2 as it is published: numbers of 4 bits of exponent and 3 of mantissa, and a factor for
// each square of 128.
TEST(HfWeights, DecodesFp8) {
  ModelSpec model = load_model(source_path("tests/fixtures/hf/minimax_m2"));
  model.hidden = 160;
  model.feed_forward = 200;
  const auto is_coded = [](std::string_view name) {
    return name.find("experts.") != name.npos || name.find("_proj.") != name.npos;
  };
  const auto code = [](std::int64_t element) { return element * 37 % 127 + element % 2 * 128; };
  const auto number = [&](std::int64_t element) {
    const auto bits = static_cast<int>(code(element) % 128);
    const double magnitude = bits < 8 ? bits / 512.0 : (8 + bits % 8) * std::exp2(bits / 8 - 10);
    return element % 2 == 1 ? -magnitude : magnitude;
  };
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : model_tensors(model)) {
    for (const HfPiece& piece : hf_pieces(model, tensor.name)) {
      const auto& shape = piece.hf_shape;
      entries.push_back({piece.name, is_coded(piece.name) ? "F8_E4M3" : "F32", shape});
      if (!is_coded(piece.name)) continue;
      entries.push_back(
          {piece.name + "_scale_inv", "F32", {(shape[0] + 127) / 128, (shape[1] + 127) / 128}});
    }
  }
  entries.push_back({"model.layers.2.enorm.weight", "F32", {160}});  // predicts one token more
  const ScratchDirectory scratch;
  const auto write = [&] {
    write_raw(scratch.file("model.safetensors"), entries, [&](const SafetensorsEntry& entry) {
      std::string bytes(static_cast<std::size_t>(entry.bytes()), '\0');
      for (std::int64_t i = 0; i < entry.elements() && entry.dtype != "F32"; ++i) {
        bytes[static_cast<std::size_t>(i)] = static_cast<char>(code(i));
      }
      for (std::int64_t i = 0; i < entry.elements() && entry.name.ends_with("_inv"); ++i) {
        const auto factor = static_cast<float>(1 + i);
        std::memcpy(&bytes[static_cast<std::size_t>(4 * i)], &factor, sizeof factor);
      }
      return bytes;
    });
  };
  write();
  const HfWeights weights = open_weights(scratch.path(), model);
  for (const auto& [name, rows, width] :
       {std::tuple("layers.1.up.weight", 200, 160), {"layers.0.down.weight", 160, 200}}) {
    const std::vector<float> found = whole(weights, name);
    for (std::int64_t i = 0; i < std::ssize(found); ++i) {
      const std::int64_t at = i % (rows * width);  // in the matrix of an expert
      const std::int64_t square = at / width / 128 * 2 + at % width / 128;
      ASSERT_EQ(static_cast<double>(found[static_cast<std::size_t>(i)]),
                number(at) * static_cast<double>(1 + square))
          << name << " " << i;
    }
    std::vector<float> part(1000);
    weights.read(name, 31777, part);
    EXPECT_EQ(part, std::vector<float>(found.begin() + 31777, found.begin() + 32777));
  }
  entries.front().dtype = "F8_E4M3";  // of embeddings, without factors
  write();
  EXPECT_THAT(input_error([&] { const HfWeights wrong = open_weights(scratch.path(), model); }),
              HasSubstr("embed_tokens.weight_scale_inv: missing"));
  std::erase_if(entries, [](const auto& entry) { return entry.name.ends_with("_inv"); });
  write();
  EXPECT_THAT(input_error([&] { const HfWeights wrong = open_weights(scratch.path(), model); }),
              HasSubstr("q_proj.weight_scale_inv: missing"));
}

}  // namespace
}  // namespace fpdt::test
