// Writes the two segments and their histories.
#include "fpdt/report/memory_snapshot.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/report/palette.h"
#include "fpdt/report/pickle.h"
#include "fpdt/report/timeline.h"

namespace fpdt {
namespace {

constexpr std::array<MemorySpace, 2> kDevices{MemorySpace::device, MemorySpace::host_pinned};
// Readers append a list in one step, and JavaScript limits the length of such a step.
constexpr std::size_t kBatch = 1000;

class Snapshot {
 public:
  explicit Snapshot(const TracedRun& run)
      : run_(run), schedule_(*run.program->schedule), live_(find_live(run)) {}

  // The number of values that become live on a device.
  [[nodiscard]] std::size_t values() const {
    std::size_t changes = 0;
    for (const MemorySpace space : kDevices) {
      changes += live_.changes[static_cast<std::size_t>(space)].size();
    }
    return changes / 2;
  }

  std::string write() {
    pickle_.begin_dictionary();
    pickle_.key("segments");
    pickle_.begin_list();
    for (std::size_t device = 0; device < kDevices.size(); ++device) segment(device);
    pickle_.end_list();
    pickle_.key("device_traces");
    pickle_.begin_list();
    for (const MemorySpace space : kDevices) history(space);
    pickle_.end_list();
    pickle_.end_dictionary();
    return pickle_.finish();
  }

 private:
  void number(std::string_view name, std::int64_t value) {
    pickle_.key(name);
    pickle_.integer(value);
  }
  void words(std::string_view name, std::string_view value) {
    pickle_.key(name);
    pickle_.text(value);
  }

  // Viewers show a frame as "file:line:name".
  void frame(const std::string& file, std::int64_t line, const std::string& name) {
    pickle_.begin_dictionary();
    words("filename", file);
    number("line", line);
    words("name", name);
    pickle_.end_dictionary();
  }

  // The values of a space that live across steps, by address.
  [[nodiscard]] std::vector<const Buffer*> lasting(MemorySpace space) const {
    std::vector<const Buffer*> stay;
    for (const Buffer& buffer : schedule_.buffers) {
      if (buffer.space == space && buffer.role != Role::temporary) stay.push_back(&buffer);
    }
    std::sort(stay.begin(), stay.end(),
              [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    return stay;
  }

  // The arena, with its contents at the end: the values that live across steps.
  void segment(std::size_t device) {
    const std::int64_t size = arena_end(schedule_, kDevices[device]).value;
    const std::vector<const Buffer*> stay = lasting(kDevices[device]);
    std::int64_t allocated = 0;
    for (const Buffer* buffer : stay) allocated += buffer->bytes().value;
    if (size == 0) return;
    pickle_.begin_dictionary();
    number("device", static_cast<std::int64_t>(device));
    number("address", 0);
    number("total_size", size);
    number("allocated_size", allocated);
    number("active_size", allocated);
    number("requested_size", allocated);
    number("stream", 0);
    words("segment_type", "large");
    pickle_.key("segment_pool_id");
    pickle_.tuple(0, 0);
    pickle_.key("is_expandable");
    pickle_.boolean(false);
    pickle_.key("frames");
    pickle_.begin_list();
    pickle_.end_list();
    pickle_.key("blocks");
    pickle_.begin_list();
    std::int64_t at = 0;
    for (const Buffer* buffer : stay) {
      if (buffer->offset > at) block(at, buffer->offset - at, nullptr);
      block(buffer->offset, buffer->bytes().value, buffer);
      at = buffer->offset + buffer->bytes().value;
    }
    if (at < size) block(at, size - at, nullptr);
    pickle_.end_list();
    pickle_.end_dictionary();
  }

  void lasting_frame(const Buffer& buffer) {
    frame(std::string(word(part_of(buffer))), buffer.slots,
          fmt::format("{}, {}", buffer.name, word(buffer.role)));
  }

  void block(std::int64_t address, std::int64_t size, const Buffer* buffer) {
    pickle_.begin_dictionary();
    number("address", address);
    number("size", size);
    number("requested_size", buffer == nullptr ? size : buffer->slots * buffer->slot_bytes().value);
    words("state", buffer == nullptr ? "inactive" : "active_allocated");
    pickle_.key("frames");
    pickle_.begin_list();
    if (buffer != nullptr) lasting_frame(*buffer);
    pickle_.end_list();
    pickle_.end_dictionary();
  }

  // Begins with what lives across steps, so that the sum of a history is all that lives.
  void history(MemorySpace space) {
    const std::vector<LiveChange>& changes = live_.changes[static_cast<std::size_t>(space)];
    const std::vector<const Buffer*> stay = lasting(space);
    pickle_.begin_list();
    std::size_t written = 0;
    const auto next = [&] {
      if (written > 0 && written % kBatch == 0) pickle_.next_batch();
      ++written;
    };
    for (const Buffer* buffer : stay) {
      next();
      lasting_event(*buffer);
    }
    for (const LiveChange& change : changes) {
      next();
      if (change.begins) {
        event("alloc", change);
      } else {
        event("free_requested", change);
        event("free_completed", change);
      }
    }
    pickle_.end_list();
  }

  // Writes an event up to its frames.
  void begin_event(std::string_view action, std::int64_t address, std::int64_t size,
                   std::int64_t time) {
    pickle_.begin_dictionary();
    words("action", action);
    number("addr", address);
    number("size", size);
    number("stream", 0);
    number("time_us", time / 1000);
    pickle_.key("frames");
    pickle_.begin_list();
  }
  void end_event() {
    pickle_.end_list();
    pickle_.end_dictionary();
  }

  void lasting_event(const Buffer& buffer) {
    begin_event("alloc", buffer.offset, buffer.slots * buffer.slot_bytes().value, live_.begin);
    lasting_frame(buffer);
    end_event();
  }

  void event(std::string_view action, const LiveChange& change) {
    const Life& life = live_.lives[index(change.life)];
    const Buffer& buffer = schedule_.buffers[index(life.buffer)];
    const std::int64_t slot = life.version % buffer.slots;
    begin_event(action, buffer.offset + slot * buffer.slot_stride().value,
                buffer.slot_bytes().value, change.time);
    frame(std::string(word(part_of(buffer))), slot,
          fmt::format("{}[{}]", buffer.name, life.version));
    const OpPlace& place = change.begins ? life.first : life.last;
    frame(fmt::format("call {}", place.call), place.op, op_text(schedule_, *run_.calls, place));
    end_event();
  }

  const TracedRun& run_;
  const Schedule& schedule_;
  Live live_;
  Pickle pickle_;
};

}  // namespace

std::string memory_snapshot(const TracedRun& run, std::size_t most) {
  Snapshot snapshot(run);
  if (snapshot.values() > most) {
    throw InputError(fmt::format(
        "memory-viz: {} values are too many for the viewer, expected at most {}; plan with longer "
        "chunks, or use --format perfetto, whose counters show the same bytes",
        snapshot.values(), most));
  }
  return snapshot.write();
}

}  // namespace fpdt
