// Moves chunks between device and host.
#include "fpdt/plan/lowering/home.h"

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// The version of one of the `each` parts of an instance.
Version part_of(const Version& instance, std::int64_t each, std::int64_t part) {
  return {instance.relative,           instance.offset * each + part, instance.layer * each,
          instance.micro_batch * each, instance.segment * each,       instance.place * each};
}

Version later(Version version, std::int64_t versions) {
  version.offset += versions;
  return version;
}

BufferIndex add_ring(Builder& builder, const HomeShape& shape, const char* suffix,
                     MemorySpace space, std::int64_t rows, std::int64_t slots) {
  return builder.add({shape.name + suffix,
                      space,
                      Role::temporary,
                      Category::activations,
                      shape.dtype,
                      {rows, shape.width},
                      slots,
                      kUnplaced});
}

}  // namespace

BufferIndex add_host_ring(Builder& builder, const HomeShape& shape, std::int64_t slots) {
  return slots == 0
             ? -1
             : add_ring(builder, shape, "_host", MemorySpace::host_pinned, shape.rows, slots);
}

// Declares the rings that the chunks need: of kept ones, of chunks at their producer, of spilled
// ones on the host, and of chunks at their consumer.
Home::Home(Builder& builder, const HomeShape& shape, const Home* like)
    : shape_(shape),
      slot_rows_(shape.rows),
      first_kept_(shape.chunks - (shape.stored ? shape.kept : 0)) {
  const auto ring = [&](const char* suffix, MemorySpace space, std::int64_t rows,
                        std::int64_t slots) {
    return add_ring(builder, shape, suffix, space, rows, slots);
  };
  const std::int64_t kept = shape.chunks - first_kept_;
  const MemorySpace device = MemorySpace::device;
  if (kept > 0 && shape.contiguous) {
    kept_ = ring("_kept", device, (kept - 1) * shape.rows + shape.last_rows, shape.instances);
  } else if (kept > 0) {
    kept_ = ring("_kept", device, shape.rows, mul(kept, shape.instances));
  }
  if (kept == shape.chunks) return;
  const bool has_rings = like != nullptr && like->produced_ >= 0;
  produced_ = has_rings ? like->produced_ : ring("_new", device, shape.rows, shape.produced_slots);
  if (!shape.stored) return;
  host_ = shape.shared ? shape.shared->ring
                       : add_host_ring(builder, shape, mul(first_kept_, shape.instances));
  if (has_rings) fetched_ = like->fetched_;
  if (!has_rings && shape.fetched_slots > 0) {
    fetched_ = ring("", device, shape.rows, shape.fetched_slots);
  }
}

// A value never passes to a slot in the op that reads the one before it there.
Home::Home(Builder& builder, const HomeShape& shape, const Home& other)
    : shape_(shape),
      slot_rows_(shape.rows),
      first_kept_(other.first_kept_),
      kept_(other.kept_),
      host_(other.host_),
      beside_(true) {
  const MemorySpace device = MemorySpace::device;
  produced_ = add_ring(builder, shape, "_new", device, shape.rows, shape.produced_slots);
  if (host_ >= 0) fetched_ = add_ring(builder, shape, "", device, shape.rows, shape.fetched_slots);
}

// The first rows of a slot; all of them for a whole chunk.
std::int64_t Home::operand_rows(std::int64_t chunk) const {
  const std::int64_t rows = shape_.rows_of(chunk);
  return rows == slot_rows_ ? -1 : rows;
}

Home Home::with_rows(std::int64_t rows) const {
  FPDT_ASSERT(!shape_.contiguous);
  Home made = *this;
  made.shape_.rows = made.shape_.last_rows = rows;
  made.begin_block();
  return made;
}

Operand Home::kept(const Instance& instance, std::int64_t chunk) const {
  if (shape_.contiguous) return kept_span(instance, chunk, chunk);
  const std::int64_t each = shape_.chunks - first_kept_;
  return {kept_, part_of(instance.number, each, chunk - first_kept_), 0, operand_rows(chunk)};
}

Operand Home::on_host(const Instance& instance, std::int64_t chunk) const {
  const auto at = [&](const Version& version) {
    return Operand{host_, version, 0, operand_rows(chunk)};
  };
  if (instance.host) return at(later(*instance.host, chunk));
  if (!shape_.shared) return at(part_of(instance.number, first_kept_, chunk));
  const HomeShape::Shared& shared = *shape_.shared;
  if (chunk < shared.repeated) return at(later(shared.repeated_at, chunk));
  return at(later(shared.stored_at, chunk - shared.repeated));
}

Operand Home::kept_span(const Instance& instance, std::int64_t first, std::int64_t last) const {
  FPDT_ASSERT(shape_.contiguous && first >= first_kept_ && last >= first);
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  for (std::int64_t i = first_kept_; i <= last; ++i) {
    (i < first ? begin : rows) += shape_.rows_of(i);
  }
  return {kept_, instance.number, begin, rows};
}

bool Home::alive(const Builder& builder, const Operand& value) const {
  const std::int64_t oldest = builder.begun(value.buffer) - builder.at(value.buffer).slots;
  return value.version.offset >= oldest;
}

Operand Home::produce(Builder& builder, const Instance& instance, std::int64_t chunk) {
  if (chunk >= first_kept_ && !beside_) return kept(instance, chunk);
  const Operand value = builder.next(produced_, shape_.rows_of(chunk));
  hold(builder, {instance, chunk, value});
  return value;
}

// Removes entries that the rings no longer hold, so the list stays as short as the rings.
void Home::hold(const Builder& builder, const Held& held) {
  std::erase_if(in_rings_, [&](const Held& other) { return !alive(builder, other.value); });
  in_rings_.push_back(held);
}

void Home::spill(Builder& builder, const Instance& instance, std::int64_t chunk,
                 const Operand& value, LaneKind lane) const {
  if (!shape_.stored) return;
  const auto copy = [&](const char* what, LaneKind on, const Operand& to) {
    builder.emit(builder.name("{}_{}.{}.{}", what, builder.at(value.buffer).name, chunk,
                              value.version.offset),
                 on, Copy{value, {to, false}});
  };
  if (chunk < first_kept_) {
    copy("spill", lane, on_host(instance, chunk));
  } else if (beside_) {
    copy("keep", LaneKind::compute, kept(instance, chunk));
  }
}

Operand Home::fetch(Builder& builder, const Instance& instance, std::int64_t chunk, Reuse reuse,
                    LaneKind lane) {
  if (chunk >= first_kept_) return kept(instance, chunk);
  if (reuse != Reuse::none && latest_.is(instance, chunk) && alive(builder, latest_.value)) {
    return latest_.value;
  }
  if (reuse == Reuse::ring || !shape_.stored) {
    for (auto known = in_rings_.rbegin(); known != in_rings_.rend(); ++known) {
      if (known->is(instance, chunk) && alive(builder, known->value)) {
        latest_ = *known;
        return known->value;
      }
    }
  }
  FPDT_ASSERT(shape_.stored);
  const Operand value = builder.next(fetched_, shape_.rows_of(chunk));
  builder.emit(builder.name("fetch_{}.{}.{}", shape_.name, chunk, value.version.offset), lane,
               Copy{on_host(instance, chunk), {value, false}});
  hold(builder, {instance, chunk, value});
  latest_ = {instance, chunk, value};
  return value;
}

void Home::fetch_into(Builder& builder, const Instance& instance, std::int64_t chunk,
                      const Operand& place, LaneKind lane) const {
  builder.emit(builder.name("fetch_{}.{}.into.{}", shape_.name, chunk, place.version.offset), lane,
               Copy{on_host(instance, chunk), {place, false}});
}

void Home::begin_block() {
  in_rings_.clear();
  latest_ = Held{};
}

void Home::advance(Builder& builder, std::int64_t n) const {
  const std::int64_t chunks = shape_.chunks;
  if (kept_ >= 0) builder.advance(kept_, shape_.contiguous ? n : n * (chunks - first_kept_));
  if (host_ >= 0 && !shape_.shared) builder.advance(host_, n * first_kept_);
}

}  // namespace fpdt
