// Small schedules written by hand in C++, on integers whose sums are exact in f32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fpdt/schedule/verify.h"

namespace fpdt {

class Tiny {
 public:
  Schedule schedule;

  Tiny(std::int64_t ranks, const std::string& block);
  BufferIndex buffer(const std::string& name, MemorySpace space, Role role,
                     const std::vector<std::int64_t>& shape, std::int64_t slots);
  void op(const std::string& name, LaneKind lane, Body body);
  void advance(BufferIndex buffer, std::int64_t versions);
  // Adds `calls` calls of the block, edges, offsets with gaps between buffers, and the proof.
  VerifiedSchedule finish(std::int32_t calls);
};

// The bytes of a slot as floats.
std::span<float> floats(std::span<std::byte> slot);

// Every rank does this for each chunk: fetch x from the host, multiply by the weight, exchange rows
// between the ranks, stash on the host. Then, from the last chunk to the first: fetch back and sum
// the columns. At the end all-reduce the sums and store them on the host. Uses lanes h2d, compute,
// comm and d2h, and rings of two.
struct Pipeline {
  std::int64_t ranks = 1;
  std::int64_t chunks = 4;
  std::int64_t rows = 8;  // of a chunk on one rank; a multiple of ranks
  std::int64_t width = 16;
  std::int32_t calls = 2;

  BufferIndex x_host = -1, weight = -1, z_host = -1, sum_host = -1;

  VerifiedSchedule build();

  // The values that the trainer would write, and the expected results.
  [[nodiscard]] float x(std::int64_t rank, std::int64_t chunk, std::int64_t row,
                        std::int64_t column) const;
  [[nodiscard]] float w(std::int64_t row, std::int64_t column) const;
  [[nodiscard]] float y(std::int64_t rank, std::int64_t chunk, std::int64_t row,
                        std::int64_t column) const;
  [[nodiscard]] float sum(std::int64_t column) const;

  // Sets inputs and states. slot(buffer, slot) gives the bytes of a rank's slot.
  template <class Slot>
  void fill(std::int64_t rank, Slot&& slot) const {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::span<float> values = floats(slot(x_host, chunk));
      for (std::int64_t i = 0; i < rows * width; ++i) {
        values[static_cast<std::size_t>(i)] = x(rank, chunk, i / width, i % width);
      }
    }
    const std::span<float> weights = floats(slot(weight, 0));
    for (std::int64_t i = 0; i < width * width; ++i) {
      weights[static_cast<std::size_t>(i)] = w(i / width, i % width);
    }
  }

  // The number of the rank's results that differ from the expected values.
  template <class Slot>
  std::int64_t wrong(std::int64_t rank, Slot&& slot) const {
    std::int64_t count = 0;
    const std::span<const float> sums = floats(slot(sum_host, 0));
    for (std::int64_t i = 0; i < width; ++i) count += sums[static_cast<std::size_t>(i)] != sum(i);
    const std::int64_t block = rows / ranks;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::span<const float> z = floats(slot(z_host, chunk));
      for (std::int64_t i = 0; i < rows * width; ++i) {
        const std::int64_t row = i / width;
        const float right = y(row / block, chunk, rank * block + row % block, i % width);
        count += z[static_cast<std::size_t>(i)] != right;
      }
    }
    return count;
  }
};

}  // namespace fpdt
