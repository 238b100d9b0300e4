// Converts weights of Hugging Face models to our tensors, and back.
//
// Our tensors are fused and stored [out, in] (spec/model.h); the three Hugging Face families store
// them differently. Here a tensor is a list of pieces; each piece is a run of its rows, taken from
// one Hugging Face tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/safetensors.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// Our rows [row, row + rows) are rows [hf_row, hf_row + rows) of the Hugging Face tensor `name`.
// Transposed: that tensor is stored [in, out], as GPT-2's Conv1D does, and the rows are its
// columns.
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
  // Opens a safetensors file, or a directory of them. InputError lists missing, unexpected and
  // mis-shaped tensors.
  HfWeights(const std::string& path, const ModelSpec& model);

  // Reads one of our tensors, row-major.
  [[nodiscard]] std::vector<float> read(std::string_view tensor) const;

 private:
  [[nodiscard]] std::string stored_name(const std::string& name) const;

  ModelSpec model_;
  SafetensorsSet tensors_;
  std::string dropped_prefix_;  // "transformer.", when a GPT-2 file leaves it out
};

// Writes config.json and model.safetensors into an existing directory. `values` returns one of our
// tensors. dtype is "F32" or "BF16". `config` is the text of the model's original config.json,
// whose keys are kept; "" if it had none. Returns the header checksum of model.safetensors.
std::uint64_t write_hf_model(
    const std::string& directory, const ModelSpec& model, std::string_view dtype,
    const std::function<std::vector<float>(const std::string& tensor)>& values,
    std::string_view config = "");

}  // namespace fpdt
