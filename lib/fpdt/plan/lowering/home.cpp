// Moves chunks between device and host.
#include "fpdt/plan/lowering/home.h"

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

std::vector<std::int64_t> shape_of(std::int64_t rows, const std::vector<std::int64_t>& row) {
  std::vector<std::int64_t> shape{rows};
  shape.insert(shape.end(), row.begin(), row.end());
  return shape;
}

}  // namespace

Home::Home(Builder& builder, const HomeShape& shape)
    : name_(shape.name), rows_(shape.rows), contiguous_(shape.contiguous) {
  const auto chunks = static_cast<std::int64_t>(rows_.size());
  const auto kept_chunks =
      shape.stored ? static_cast<std::int64_t>(shape.keep * static_cast<double>(chunks)) : 0;
  first_kept_ = chunks - kept_chunks;
  const auto ring = [&](const std::string& name, MemorySpace space, std::int64_t rows,
                        std::int64_t slots) {
    return builder.buffer({name, space, Role::temporary, shape.category, shape.dtype,
                           shape_of(rows, shape.row), slots, kUnplaced});
  };
  if (kept_chunks > 0) {
    std::int64_t kept_rows = 0;
    for (std::int64_t i = first_kept_; i < chunks; ++i)
      kept_rows += rows_[static_cast<std::size_t>(i)];
    kept_ = contiguous_ ? ring(name_ + "_kept", MemorySpace::device, kept_rows, shape.instances)
                        : ring(name_ + "_kept", MemorySpace::device, rows_.front(),
                               mul(kept_chunks, shape.instances));
  }
  if (first_kept_ == 0) return;
  produced_ = ring(name_ + "_new", MemorySpace::device, rows_.front(), shape.produced_slots);
  if (!shape.stored) return;
  host_ = ring(name_ + "_host", MemorySpace::host_pinned, rows_.front(),
               mul(first_kept_, shape.instances));
  fetched_ = ring(name_, MemorySpace::device, rows_.front(), shape.fetched_slots);
}

Version Home::version(const Instance& instance, std::int64_t chunk) const {
  const bool kept_chunk = chunk >= first_kept_;
  const std::int64_t chunks = static_cast<std::int64_t>(rows_.size());
  const std::int64_t each = kept_chunk ? (contiguous_ ? 1 : chunks - first_kept_) : first_kept_;
  const std::int64_t within = kept_chunk ? (contiguous_ ? 0 : chunk - first_kept_) : chunk;
  return {instance.relative, instance.offset * each + within, instance.layer * each,
          instance.micro_batch * each, instance.segment * each};
}

Operand Home::kept(const Instance& instance, std::int64_t chunk) const {
  if (contiguous_) return kept_span(instance, chunk, chunk);
  const std::int64_t rows = rows_[static_cast<std::size_t>(chunk)];
  return {kept_, version(instance, chunk), 0, rows == rows_.front() ? -1 : rows};
}

Operand Home::on_host(const Instance& instance, std::int64_t chunk) const {
  const std::int64_t rows = rows_[static_cast<std::size_t>(chunk)];
  return {host_, version(instance, chunk), 0, rows == rows_.front() ? -1 : rows};
}

Operand Home::kept_span(const Instance& instance, std::int64_t first, std::int64_t last) const {
  FPDT_ASSERT(contiguous_ && first >= first_kept_ && last >= first);
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  for (std::int64_t i = first_kept_; i <= last; ++i) {
    (i < first ? begin : rows) += rows_[static_cast<std::size_t>(i)];
  }
  return {kept_, version(instance, first), begin, rows};
}

bool Home::alive(const Builder& builder, const Operand& value) const {
  const std::int64_t oldest = builder.begun(value.buffer) - builder.at(value.buffer).slots;
  return value.version.offset >= oldest;
}

Operand Home::produce(Builder& builder, const Instance& instance, std::int64_t chunk) {
  if (chunk >= first_kept_) return kept(instance, chunk);
  const Operand value = builder.next(produced_, rows_[static_cast<std::size_t>(chunk)]);
  hold(builder, {chunk, value});
  return value;
}

// Removes entries that the rings no longer hold, so the list stays as short as the rings.
void Home::hold(const Builder& builder, const Held& held) {
  std::erase_if(in_rings_, [&](const Held& other) { return !alive(builder, other.value); });
  in_rings_.push_back(held);
}

void Home::spill(Builder& builder, const Instance& instance, std::int64_t chunk,
                 const Operand& value, LaneKind lane) const {
  if (chunk >= first_kept_ || host_ < 0) return;
  builder.emit(
      fmt::format("spill_{}.{}.{}", builder.at(value.buffer).name, chunk, value.version.offset),
      lane, Copy{value, {on_host(instance, chunk), false}});
}

Operand Home::fetch(Builder& builder, const Instance& instance, std::int64_t chunk, Reuse reuse,
                    LaneKind lane) {
  if (chunk >= first_kept_) return kept(instance, chunk);
  if (reuse != Reuse::none && latest_.chunk == chunk && alive(builder, latest_.value)) {
    return latest_.value;
  }
  if (reuse == Reuse::ring || host_ < 0) {
    for (auto known = in_rings_.rbegin(); known != in_rings_.rend(); ++known) {
      if (known->chunk == chunk && alive(builder, known->value)) {
        latest_ = *known;
        return known->value;
      }
    }
  }
  FPDT_ASSERT(host_ >= 0);
  const Operand value = builder.next(fetched_, rows_[static_cast<std::size_t>(chunk)]);
  builder.emit(fmt::format("fetch_{}.{}.{}", name_, chunk, value.version.offset), lane,
               Copy{on_host(instance, chunk), {value, false}});
  hold(builder, {chunk, value});
  latest_ = {chunk, value};
  return value;
}

void Home::fetch_into(Builder& builder, const Instance& instance, std::int64_t chunk,
                      const Operand& place, LaneKind lane) const {
  builder.emit(fmt::format("fetch_{}.{}.last", name_, chunk), lane,
               Copy{on_host(instance, chunk), {place, false}});
}

void Home::begin_block() {
  in_rings_.clear();
  latest_ = Held{};
}

void Home::advance(Builder& builder, std::int64_t n) const {
  const auto chunks = static_cast<std::int64_t>(rows_.size());
  if (kept_ >= 0) builder.advance(kept_, contiguous_ ? n : n * (chunks - first_kept_));
  if (host_ >= 0) builder.advance(host_, n * first_kept_);
}

}  // namespace fpdt
