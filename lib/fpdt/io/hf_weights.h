// Weights of Hugging Face models as our tensors, and back.
//
// Our tensors are fused and stored [out, in] (spec/model.h); theirs come in three spellings. A
// tensor here is a list of pieces, each a run of its rows taken from one of their tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/safetensors.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// Our rows [row, row + rows) are rows [hf_row, hf_row + rows) of the named tensor. Transposed: it
// is stored [in, out], as the Conv1D of GPT-2 does, and its rows are columns there.
struct HfPiece {
  std::string name;
  std::vector<std::int64_t> hf_shape;
  std::int64_t row = 0;
  std::int64_t hf_row = 0;
  std::int64_t rows = 0;
  bool transposed = false;
};

// The pieces of one of our tensors ("embed.weight", "layers.3.qkv.weight"), by ascending row.
std::vector<HfPiece> hf_pieces(const ModelSpec& model, std::string_view tensor);

// Every tensor of the model with its full name, globals first, then layer by layer.
std::vector<TensorSpec> model_tensors(const ModelSpec& model);

class HfWeights {
 public:
  // A directory or file of safetensors. InputError lists missing, unexpected and mis-shaped
  // tensors.
  HfWeights(const std::string& path, const ModelSpec& model);

  // One of our tensors, row-major.
  [[nodiscard]] std::vector<float> read(std::string_view tensor) const;

 private:
  [[nodiscard]] std::string stored_name(const std::string& name) const;

  ModelSpec model_;
  SafetensorsSet tensors_;
  std::string dropped_prefix_;  // "transformer.", where a GPT-2 file goes without
};

// Writes config.json and model.safetensors into an existing directory; `values` returns one of our
// tensors. dtype is "F32" or "BF16". `config` is the text of the config.json that the model came
// with, whose keys are kept; "" where there was none. Returns the checksum of the header of
// model.safetensors.
std::uint64_t write_hf_model(
    const std::string& directory, const ModelSpec& model, std::string_view dtype,
    const std::function<std::vector<float>(const std::string& tensor)>& values,
    std::string_view config = "");

}  // namespace fpdt
