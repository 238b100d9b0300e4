// The training data of a step: consecutive windows of a token file.
//
// A window is seq_len tokens and the one after them, because the label of a token is the next
// token. Windows overlap only in that one token. When the rest of the file is too short, they start
// again at its beginning. The cursor is the only state: the same cursor gives the same windows for
// any number of ranks. A step is passed over when none of its windows has a label that counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/io/tokens.h"

namespace fpdt {

// One sequence; the three rows are equally long.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;     // the next token; -1: masked
  std::vector<std::int32_t> documents;  // [t]: the first token of t's document, <= t

  // The number of labels that count.
  [[nodiscard]] std::int64_t unmasked() const;
};

// The number of labels that count, over all samples.
std::int64_t unmasked(const std::vector<Sample>& samples);

// The needs of a process that takes part in a step.
struct BatchNeeds {
  // Whether sequence i is read here. Others stay empty. Null: all are read.
  std::function<bool(std::int64_t)> reads;
  // The number of labels that count, of all processes together. Null: those of the samples.
  std::function<std::int64_t(const std::vector<Sample>&)> labels;
};

struct BatchOptions {
  std::int32_t document_separator = -1;  // token that ends a document; negative: one document
  std::string loss_mask;  // a file of one byte per token, 0: masked, 1: not; "": none
  FormatOptions format{};
};

class Batches {
 public:
  // Throws InputError when the file holds no whole window, when no window has a label that counts,
  // or when the mask and the tokens differ in length.
  Batches(const std::string& path, std::int64_t vocabulary, std::int64_t seq_len,
          const BatchOptions& options = {});

  Sample next();
  std::vector<Sample> next(std::int64_t count, const BatchNeeds& needs = {});
  // Returns the next `count` windows that include a label that counts. Passes over `count` windows
  // at a time.
  std::vector<Sample> next_labelled(std::int64_t count, const BatchNeeds& needs = {});

  // The number of windows in one pass through the file.
  [[nodiscard]] std::int64_t windows() const { return (tokens_.count() - 1) / seq_len_; }
  [[nodiscard]] const TokenFile& tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }
  // The number of windows that next_labelled has passed over.
  [[nodiscard]] std::int64_t passed_over() const { return passed_over_; }
  // The first token of the next window.
  [[nodiscard]] std::int64_t cursor() const { return cursor_; }
  // Throws InputError when the file has no such token.
  void seek(std::int64_t cursor);
  // Whether a whole window begins at `cursor`.
  [[nodiscard]] bool fits(std::int64_t cursor) const {
    return cursor >= 0 && cursor <= tokens_.count() - seq_len_ - 1;
  }

 private:
  void advance();

  TokenFile tokens_;
  std::optional<RandomAccessFile> mask_;
  std::int64_t seq_len_;
  std::int32_t separator_;
  std::int64_t cursor_ = 0;
  std::int64_t passed_over_ = 0;
};

}  // namespace fpdt
