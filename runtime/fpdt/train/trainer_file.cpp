// Prints and parses trainer.json.
#include "fpdt/train/trainer_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/error.h"
#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"
#include "fpdt/io/json.h"
#include "fpdt/io/safetensors_writer.h"

namespace fpdt {
namespace {

constexpr std::int64_t kOneFile = 2, kSeveralFiles = 3;
constexpr std::string_view kBeforeChecksum = ",\"checksum\":\"";

// One checksum is a text, several are a list.
std::string print_sums(const std::vector<std::string>& sums) {
  return sums.size() == 1 ? json_string(sums.front())
                          : fmt::format("[\"{}\"]", fmt::join(sums, "\",\""));
}

void read_sums(Fields& fields, std::string_view key, std::vector<std::string>& sums) {
  const Node* const node = fields.find(key);
  if (node == nullptr) return;  // format 1
  if (node->kind != NodeKind::list) {
    if (!convert(*node, sums.front())) fields.wrong(*node, key, "a checksum");
    return;
  }
  sums.resize(node->items.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!convert(node->items[i], sums[i])) fields.wrong(node->items[i], key, "a checksum");
  }
  if (sums.size() < 2) fields.wrong(*node, key, "a checksum, or several");
}

// Compares the text with its own checksum: a changed digit of the cursor would give another run.
void require_intact(std::string_view text, const std::string& file_name) {
  const std::size_t at = text.rfind(kBeforeChecksum);
  if (at == std::string_view::npos) return;
  const std::string expected = checksum_digits(checksum(text.substr(0, at)));
  if (text.substr(at + kBeforeChecksum.size()).starts_with(expected)) return;
  throw InputError(fmt::format(
      "{}: does not match its checksum: it was damaged, or edited (if edited, remove the "
      "checksum from it) [T104]",
      file_name));
}

// Whether the name is "<stem>-00001-of-00003.safetensors", for any digits.
bool is_shard(std::string_view name, std::string_view stem) {
  constexpr std::string_view kPattern = "-#####-of-#####.safetensors";
  if (!name.starts_with(stem) || name.size() != stem.size() + kPattern.size()) return false;
  name.remove_prefix(stem.size());
  return std::equal(name.begin(), name.end(), kPattern.begin(), [](char found, char expected) {
    return expected == '#' ? found >= '0' && found <= '9' : found == expected;
  });
}

}  // namespace

std::string print_trainer_file(const TrainerFile& file) {
  const Progress& progress = file.progress;
  const bool several = file.model.size() > 1 || file.states.size() > 1;
  const std::string text = fmt::format(
      "{{\"fpdt_checkpoint\":{},\"step\":{},\"cursor\":{},\"seed\":\"{}\",\"schedule\":{},"
      "\"ranks\":{},\"model\":{},\"states\":{}{}",
      several ? kSeveralFiles : kOneFile, progress.step, progress.cursor, progress.seed,
      json_string(progress.schedule), progress.ranks, print_sums(file.model),
      print_sums(file.states),
      progress.course.empty() ? "" : fmt::format(",\"course\":{}", progress.course));
  return fmt::format("{}{}{}\"}}\n", text, kBeforeChecksum, checksum_digits(checksum(text)));
}

TrainerFile parse_trainer_file(const std::string& text, const std::string& file_name) {
  require_intact(text, file_name);
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  TrainerFile file;
  Progress& progress = file.progress;
  std::int64_t format = 0;
  std::string seed, sum;
  Fields fields(root, "", findings);
  fields.required("fpdt_checkpoint", format);
  fields.required("step", progress.step);
  fields.required("cursor", progress.cursor);
  fields.required("seed", seed);
  fields.required("schedule", progress.schedule);
  fields.required("ranks", progress.ranks);
  read_sums(fields, "model", file.model);
  read_sums(fields, "states", file.states);
  fields.optional("checksum", sum);
  if (const Node* const course = fields.find("course")) progress.course = json_text(*course);
  fields.done();
  findings.raise();
  if (format < 1 || format > kSeveralFiles) {
    throw InputError(fmt::format("{}: expected a checkpoint of format 1 to {}, found {}", file_name,
                                 kSeveralFiles, format));
  }
  const bool digits = !seed.empty() && seed.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || seed.size() > 19 || progress.step < 0 || progress.cursor < 0) {
    throw InputError(
        fmt::format("{}: step, cursor and seed must be counts of 0 or more", file_name));
  }
  progress.seed = std::stoull(seed);
  return file;
}

std::optional<TrainerFile> find_trainer_file(const std::string& path) {
  try {
    if (exists(path)) return parse_trainer_file(read_file(path, kTrainerFileMax), path);
  } catch (const InputError&) {
  }
  return {};
}

std::vector<std::string> files_of(const TrainerFile& file) {
  std::vector<std::string> names{"trainer.json", "config.json"};
  for (const auto& [stem, files] :
       {std::pair(kModelStem, file.model.size()), std::pair(kStatesStem, file.states.size())}) {
    const std::vector<std::string> shards = shard_names(stem, files);
    names.insert(names.end(), shards.begin(), shards.end());
    if (files > 1) names.push_back(index_name(stem));
  }
  return names;
}

std::string stored_name(std::string_view kind, std::string_view tensor) {
  return fmt::format("{}.{}", kind, tensor);
}

bool is_checkpoint_file(std::string_view name) {
  const auto is_of = [&](std::string_view stem) {
    return name == shard_names(stem, 1).front() || name == index_name(stem) || is_shard(name, stem);
  };
  return name == "trainer.json" || name == "config.json" || is_of(kModelStem) || is_of(kStatesStem);
}

}  // namespace fpdt
