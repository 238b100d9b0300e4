// One list of the fields, used to print, read and compare them.
#include "fpdt/train/course.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

template <class Self, class Visit>
void visit_entries(Self& course, Visit&& visit) {
  visit("data", course.data);
  visit("data_format", course.data_format);
  visit("document_separator", course.document_separator);
  visit("loss_mask", course.loss_mask);
  visit("seed", course.seed);
  visit("learning_rate", course.rate.peak);
  visit("min_learning_rate", course.rate.minimum);
  visit("warmup", course.rate.warmup);
  visit("decay_steps", course.rate.steps);
  visit("seq_len", course.seq_len);
  visit("sequences", course.sequences);
  visit("beta1", course.optimizer.beta1);
  visit("beta2", course.optimizer.beta2);
  visit("epsilon", course.optimizer.epsilon);
  visit("weight_decay", course.optimizer.weight_decay);
  visit("clip", course.optimizer.clip);
}

}  // namespace

Facts facts_of(const Course& course) {
  Facts all;
  visit_entries(course, [&all](std::string_view name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      all.emplace_back(name, json_string(value));
    } else {
      all.emplace_back(name, fmt::format("{}", value));
    }
  });
  return all;
}

void Identity::read(std::int64_t bytes) {
  constexpr std::int64_t kPiece = 1 << 20;
  const std::int64_t end = done_ + std::min(bytes, left());
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, end - done_)));
  while (done_ < end) {
    const auto some =
        std::span(piece).first(static_cast<std::size_t>(std::min(std::ssize(piece), end - done_)));
    file_.read(done_, some);
    sum_.add(some);
    done_ += std::ssize(some);
  }
}

std::string Identity::text() const {
  FPDT_ASSERT(left() == 0);
  return fmt::format("{} bytes, checksum {}", file_.size(), checksum_digits(sum_.value()));
}

std::string identity_of(const std::string& path) {
  Identity file(path);
  file.read(file.left());
  return file.text();
}

std::string sample_of(const std::string& path) {
  constexpr std::int64_t kPiece = 64 << 10;
  constexpr std::int64_t kPieces = 16;
  const RandomAccessFile file(path);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, file.size())));
  Checksum sum;
  for (std::int64_t i = 0; i < kPieces; ++i) {
    file.read((file.size() - std::ssize(piece)) / (kPieces - 1) * i, piece);
    sum.add(piece);
  }
  return fmt::format("{} bytes, checksum {} of {} parts", file.size(), checksum_digits(sum.value()),
                     kPieces);
}

std::string print_course(const Course& course) {
  std::string text;
  for (const auto& [name, value] : facts_of(course)) {
    text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", name, value);
  }
  return fmt::format("{{{}}}", text);
}

Course parse_course(std::string_view text, std::string_view file_name) {
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  Course course;
  Fields fields(root, "course", findings);
  visit_entries(course,
                [&fields](std::string_view name, auto& value) { fields.required(name, value); });
  fields.done();
  findings.raise();
  const auto expect = [&](bool good, std::string_view name, std::string_view what) {
    if (!good) findings.add("Y103", *root.find(name), fmt::format("course.{}: {}", name, what));
  };
  const LearningRate& rate = course.rate;
  expect(rate.peak > 0, "learning_rate", "expected a number over 0");
  expect(rate.minimum <= rate.peak, "min_learning_rate", "expected at most learning_rate");
  expect(rate.warmup >= 0, "warmup", "expected a number of steps");
  expect(rate.steps >= 0, "decay_steps", "expected a number of steps");
  expect(course.document_separator >= -1, "document_separator", "expected a token, or -1 for none");
  findings.raise();
  return course;
}

std::vector<std::string> differences(const Course& saved, const Course& now) {
  const Facts before = facts_of(saved);
  const Facts after = facts_of(now);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto& [name, value] = before[i];
    if (value == after[i].second) continue;
    lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", name, value, after[i].second));
  }
  return lines;
}

}  // namespace fpdt
