// What a step trains on: consecutive windows of a token file.
//
// A window is seq_len tokens and the one after them, since the label of a token is the token that
// follows it. Windows follow one another without overlap (but for that one) and begin again at the
// start of the file when the rest is too short. The cursor is the only state: the same cursor gives
// the same windows, for any number of ranks. When no window of a step has a label that counts, the
// step is passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/io/tokens.h"

namespace fpdt {

// One sequence; the three rows are equally long.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;     // the next token; -1: does not count
  std::vector<std::int32_t> documents;  // of t: the first token of t's document, <= t

  // Labels that count.
  [[nodiscard]] std::int64_t unmasked() const;
};

// Labels that count.
std::int64_t unmasked(const std::vector<Sample>& samples);

struct BatchOptions {
  std::int32_t document_separator = -1;  // the token that ends a document; negative: one document
  std::string loss_mask;  // a file of one byte a token, 0: do not learn to predict it; "": none
  TokenFormat format = TokenFormat::sniff;  // that the file must have
  TokenFormat usual = TokenFormat::sniff;   // where neither that nor the file says one
};

class Batches {
 public:
  // InputError when the file holds no whole window, when no window has a label that counts, or when
  // the mask is not as long as the tokens.
  Batches(const std::string& path, std::int64_t vocabulary, std::int64_t seq_len,
          const BatchOptions& options = {});

  Sample next();
  std::vector<Sample> next(std::int64_t count);
  // The next `count` windows with a label that counts among them; passes over `count` at a time.
  std::vector<Sample> next_labelled(std::int64_t count);

  // Windows of one pass through the file.
  [[nodiscard]] std::int64_t windows() const { return (tokens_.count() - 1) / seq_len_; }
  [[nodiscard]] TokenFormat format() const { return tokens_.format(); }
  // Windows that next_labelled has passed over.
  [[nodiscard]] std::int64_t passed_over() const { return passed_over_; }
  // The first token of the next window.
  [[nodiscard]] std::int64_t cursor() const { return cursor_; }
  // InputError when there is no such token.
  void seek(std::int64_t cursor);
  // Whether a whole window begins there.
  [[nodiscard]] bool fits(std::int64_t cursor) const {
    return cursor >= 0 && cursor <= tokens_.count() - seq_len_ - 1;
  }

 private:
  TokenFile tokens_;
  std::optional<RandomAccessFile> mask_;
  std::int64_t seq_len_;
  std::int32_t separator_;
  std::int64_t cursor_ = 0;
  std::int64_t passed_over_ = 0;
};

}  // namespace fpdt
