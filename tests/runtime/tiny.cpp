// Builds small schedules, and the pipeline with its expected values.
#include "tiny.h"

#include <utility>

#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

constexpr std::int64_t kGap = 512;

Operand plus(BufferIndex buffer, std::int64_t n) { return {buffer, Version::plus(n)}; }
Target into(const Operand& operand) { return {operand, false}; }
Target onto(const Operand& operand) { return {operand, true}; }

}  // namespace

Tiny::Tiny(std::int64_t ranks, const std::string& block) {
  schedule.ranks = ranks;
  schedule.problem = "{}";
  schedule.groups.push_back({"all", ranks, 1, {}});
  schedule.blocks.push_back({block, {}, {}});
}

BufferIndex Tiny::buffer(const std::string& name, MemorySpace space, Role role,
                         const std::vector<std::int64_t>& shape, std::int64_t slots) {
  Buffer buffer;
  buffer.name = name;
  buffer.space = space;
  buffer.role = role;
  buffer.shape = shape;
  buffer.slots = slots;
  schedule.buffers.push_back(buffer);
  return static_cast<BufferIndex>(schedule.buffers.size() - 1);
}

void Tiny::op(const std::string& name, LaneKind lane, Body body) {
  schedule.blocks.back().ops.push_back({name, {lane, 0}, std::move(body), {}});
}

void Tiny::advance(BufferIndex buffer, std::int64_t versions) {
  schedule.blocks.back().advance.emplace_back(buffer, versions);
}

VerifiedSchedule Tiny::finish(std::int32_t calls) {
  for (std::int32_t i = 0; i < calls; ++i) schedule.train.push_back({0, i, 0, 0});
  std::int64_t ends[3] = {0, 0, 0};
  for (Buffer& buffer : schedule.buffers) {
    std::int64_t& end = ends[static_cast<std::size_t>(buffer.space)];
    buffer.offset = end;
    end += buffer.bytes().value + kGap;
  }
  depend(schedule);
  return verified(schedule);
}

std::span<float> floats(std::span<std::byte> slot) {
  return {reinterpret_cast<float*>(slot.data()), slot.size() / sizeof(float)};
}

VerifiedSchedule Pipeline::build() {
  Tiny tiny(ranks, "step");
  x_host = tiny.buffer("x_host", MemorySpace::host, Role::input, {rows, width}, chunks);
  weight = tiny.buffer("weight", MemorySpace::device, Role::input, {width, width}, 1);
  const auto ring = [&](const char* name) {
    return tiny.buffer(name, MemorySpace::device, Role::temporary, {rows, width}, 2);
  };
  const BufferIndex in = ring("x");
  const BufferIndex product = ring("y");
  const BufferIndex exchanged = ring("z");
  const BufferIndex back = ring("back");
  const BufferIndex part = tiny.buffer("part", MemorySpace::device, Role::temporary, {1, width}, 1);
  const BufferIndex total =
      tiny.buffer("total", MemorySpace::device, Role::temporary, {1, width}, 1);
  z_host = tiny.buffer("z_host", MemorySpace::host_pinned, Role::temporary, {rows, width}, chunks);
  sum_host = tiny.buffer("sum_host", MemorySpace::host, Role::output, {1, width}, 1);

  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::string chunk = "." + std::to_string(i);
    tiny.op("fetch" + chunk, LaneKind::h2d, Copy{{x_host, Version::at(i)}, into(plus(in, i))});
    Matmul matmul;
    matmul.a = plus(in, i);
    matmul.b = {weight, Version::at(0)};
    matmul.out = into(plus(product, i));
    matmul.m = rows;
    matmul.n = matmul.k = width;
    tiny.op("multiply" + chunk, LaneKind::compute, matmul);
    tiny.op("exchange" + chunk, LaneKind::comm,
            AllToAll{"all", {plus(product, i)}, {into(plus(exchanged, i))}});
    tiny.op("stash" + chunk, LaneKind::d2h, Copy{plus(exchanged, i), into(plus(z_host, i))});
  }
  tiny.op("clear", LaneKind::compute, Fill{into(plus(part, 0)), 0});
  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::string chunk = "." + std::to_string(i);
    tiny.op("return" + chunk, LaneKind::h2d,
            Copy{plus(z_host, chunks - 1 - i), into(plus(back, i))});
    tiny.op("sum" + chunk, LaneKind::compute,
            ColumnSum{plus(back, i), onto(plus(part, 0)), rows, width, -1});
  }
  tiny.op("reduce", LaneKind::comm, AllReduce{"all", {plus(part, 0)}, {into(plus(total, 0))}});
  tiny.op("store", LaneKind::d2h, Copy{plus(total, 0), into(plus(sum_host, 0))});
  for (const BufferIndex buffer : {in, product, exchanged, back}) tiny.advance(buffer, chunks);
  for (const BufferIndex buffer : {part, total}) tiny.advance(buffer, 1);
  tiny.advance(z_host, chunks);
  tiny.advance(sum_host, 1);
  return tiny.finish(calls);
}

float Pipeline::x(std::int64_t rank, std::int64_t chunk, std::int64_t row,
                  std::int64_t column) const {
  return static_cast<float>((rank * 7 + chunk * 5 + row * 3 + column) % 11 - 5);
}

float Pipeline::w(std::int64_t row, std::int64_t column) const {
  return static_cast<float>((row * 5 + column * 3) % 7 - 3);
}

float Pipeline::y(std::int64_t rank, std::int64_t chunk, std::int64_t row,
                  std::int64_t column) const {
  float product = 0;
  for (std::int64_t k = 0; k < width; ++k) product += x(rank, chunk, row, k) * w(k, column);
  return product;
}

float Pipeline::sum(std::int64_t column) const {
  float total = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (std::int64_t row = 0; row < rows; ++row) total += y(rank, chunk, row, column);
    }
  }
  return total;
}

}  // namespace fpdt
