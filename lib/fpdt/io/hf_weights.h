// Reads our tensors from the weights of Hugging Face models.
//
// Our tensors are fused and stored [out, in] (spec/model.h); the Hugging Face families store them
// differently. Here a tensor is a list of pieces; each piece is a run of its rows, taken from
// one Hugging Face tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/safetensors.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// Our rows [row, row + rows) lie in the Hugging Face tensor `name`: element (i, j) of them at
// offset + i * row_step + j * column_step. Transposed where rows are its columns, as in GPT-2's
// Conv1D and in the experts of gpt-oss; interleaved where rows of several pieces alternate.
struct HfPiece {
  std::string name;
  std::vector<std::int64_t> hf_shape;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t offset = 0, row_step = 0, column_step = 1;
  // Rows change their order only within groups of this many. The groups have the same order in both
  // tensors, so a writer holds one of them.
  std::int64_t unit = 0;
  float less = 0;  // by which stored values are less: Gemma stores the weights of norms less one
  [[nodiscard]] std::int64_t elements() const;  // of the whole Hugging Face tensor
};

// How a file has the experts of a layer, but those of gpt-oss: each matrix in a tensor of its own,
// as published models have it, or those of all experts in one, as transformers 5 computes with them
// (save_original_format=False).
enum class HfExperts : std::uint8_t { apart, merged };

// The pieces of one of our tensors ("embed.weight", "layers.3.qkv.weight"), by ascending row.
std::vector<HfPiece> hf_pieces(const ModelSpec& model, std::string_view tensor,
                               HfExperts experts = HfExperts::apart);

// Elements of a row of one of our tensors, of which a vector has one each.
std::int64_t row_width(const ModelSpec& model, std::string_view tensor);

// Whether the pieces are whole Hugging Face tensors that hold our elements in our order.
bool in_order(const std::vector<HfPiece>& pieces);

// One piece of each Hugging Face tensor, in order of first use.
std::vector<const HfPiece*> distinct(const std::vector<HfPiece>& pieces);

class HfWeights {
 public:
  // InputError lists missing, unexpected and mis-shaped tensors. Of a Gemma 3 for images and text,
  // the tensors of images are left out, and of a MiniMax-M2 those of layers that predict further
  // tokens.
  HfWeights(SafetensorsSet tensors, const ModelSpec& model);

  [[nodiscard]] const SafetensorsSet& stored() const { return tensors_; }
  // Reads elements [first, first + values.size()) of one of our tensors, row-major. Reads only
  // their bytes, and compares no checksum.
  void read(std::string_view tensor, std::int64_t first, std::span<float> values) const;
  // Hands one of our tensors to `sink`, in order, and compares the checksums of what it is stored
  // as. Throws InputError when bytes have changed.
  void stream(std::string_view tensor, const TensorSink& sink) const;
  // Only compares the checksums.
  void verify(std::string_view tensor) const;

 private:
  [[nodiscard]] std::vector<HfPiece> pieces_of(std::string_view tensor) const {
    return hf_pieces(model_, tensor, experts_);
  }
  [[nodiscard]] std::string stored_name(const std::string& name) const;
  // Elements from `first` on of a piece, whose rows have `width` of them: in order, transposed or
  // interleaved, or in MXFP4.
  void read_piece(const HfPiece& piece, std::int64_t width, std::int64_t first,
                  std::span<float> values) const;
  void read_strided(const HfPiece& piece, std::int64_t width, std::int64_t first,
                    std::span<float> values) const;
  // Multiplies elements of the Hugging Face tensor of a piece, from `first` on, by the factors of
  // their squares, if it is in FP8.
  void scale(const HfPiece& piece, std::int64_t first, std::span<float> values) const;
  void verify_scales(const HfPiece& piece) const;
  void read_mxfp4(const HfPiece& piece, std::int64_t width, std::int64_t first,
                  std::span<float> values) const;
  [[nodiscard]] bool is_mxfp4(const HfPiece& piece) const;
  [[nodiscard]] bool is_fp8(const HfPiece& piece) const;

  ModelSpec model_;
  SafetensorsSet tensors_;
  HfExperts experts_ = HfExperts::apart;
  // A prefix of names, and what stands for it in these files: "transformer." and nothing where a
  // GPT-2 file leaves it out, "model." and "language_model.model." in a Gemma 3 for images.
  std::string prefix_, stored_prefix_;
};

}  // namespace fpdt
