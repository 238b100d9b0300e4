// Besides weights, moments and the step, these fix the course of a training run: the data and how
// it is read, the learning rate, the sequences of a step, and the optimizer. A checkpoint records
// them, so that a resumed run continues unchanged unless its user allows a difference.
//
// Files are compared by content, not by name. A decaying learning rate depends on the length of the
// run. It is recorded with the length that it was computed for, so that a longer run does not
// change it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"
#include "fpdt/runtime/world.h"
#include "fpdt/spec/strategy.h"
#include "fpdt/train/learning_rate.h"

namespace fpdt {

struct Course {
  std::string data;         // identity_of the token file
  std::string data_format;  // the word of a TokenFormat
  std::int64_t document_separator = -1;
  std::string loss_mask;  // identity_of the mask file; "": none
  std::int64_t seed = 1;
  LearningRate rate;           // its `steps`: where the minimum is reached; 0: there is none
  std::int64_t seq_len = 0;    // tokens of a sequence
  std::int64_t sequences = 0;  // per step
  OptimizerSpec optimizer;
};

// Size and checksum of a file, for comparison and for people. A file may take an hour to read, so
// it is read in parts.
class Identity {
 public:
  explicit Identity(const std::string& path) : file_(path) {}
  [[nodiscard]] std::int64_t left() const { return file_.size() - done_; }  // bytes
  // Reads that many bytes, or what is left.
  void read(std::int64_t bytes);
  // Precondition: nothing is left.
  [[nodiscard]] std::string text() const;

 private:
  RandomAccessFile file_;
  std::int64_t done_ = 0;
  Checksum sum_;
};
// The same at once.
std::string identity_of(const std::string& path);

// Size and checksum of parts that are spread over a file: cheap, where a copy that is cut off or
// another file is what to look for.
std::string sample_of(const std::string& path);

// The entries of a course, each by its name and as JSON.
Facts facts_of(const Course& course);

// Prints a course as one JSON object.
std::string print_course(const Course& course);
// Throws InputError when the text is not a course.
Course parse_course(std::string_view text, std::string_view file_name);

// One line for each difference, with both values. A difference of the data comes first.
std::vector<std::string> differences(const Course& saved, const Course& now);

}  // namespace fpdt
