// Loads the hand-written schedules.
#include "golden.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/print.h"
#include "fpdt/schedule/text.h"
#include "fpdt/schedule/verify.h"

namespace fpdt::test {
namespace {

std::string path_of(std::string_view name) {
  return FPDT_SOURCE_DIR "/tests/golden/" + std::string(name);
}

template <class Items>
auto& named(Items& items, std::string_view name) {
  for (auto& item : items) {
    if (item.name == name) return item;
  }
  throw std::out_of_range(std::string(name));
}

}  // namespace

std::string golden_text(std::string_view name) {
  std::ifstream file(path_of(name), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Schedule golden(std::string_view name) { return parse_schedule(golden_text(name), name); }

void write_golden(std::string_view name) {
  const std::string text = print(golden(name));
  std::ofstream(path_of(name), std::ios::binary) << text;
}

Block& block_of(Schedule& schedule, std::string_view block) {
  return named(schedule.blocks, block);
}

Op& op_of(Schedule& schedule, std::string_view block, std::string_view op) {
  return named(block_of(schedule, block).ops, op);
}

Buffer& buffer_of(Schedule& schedule, std::string_view buffer) {
  return named(schedule.buffers, buffer);
}

std::set<std::string> codes(const Schedule& schedule) {
  std::set<std::string> found;
  for (const Diagnostic& finding : verify(schedule)) found.insert(finding.code);
  return found;
}

std::string edges_text(const Schedule& schedule) {
  std::string text;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      text += block.name + "." + op.name + ":";
      for (const After& after : op.after) {
        const Block& awaited = schedule.blocks[static_cast<std::size_t>(after.block)];
        text += ' ';
        text += after_text({awaited.name, awaited.ops[static_cast<std::size_t>(after.op)].name,
                            after.calls_back, after.of_layer});
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace fpdt::test
