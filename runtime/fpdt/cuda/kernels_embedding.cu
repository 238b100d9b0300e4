// The embedding of tokens, and the gradient of its tables.
//
// A kernel cannot throw for a word or position outside of its table (the trainer checks its
// inputs). The row of such a token becomes NaN, and its gradient is dropped.
#include <limits>

#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/packs.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The tokens of a chunk and their positions in their documents.
struct Tokens {
  const std::int32_t* ids;        // of the chunk
  const std::int32_t* documents;  // of the whole sequence; nullptr: one document
  std::int64_t first;

  [[nodiscard]] __device__ std::int64_t position(std::int64_t row) const {
    const std::int64_t token = first + row;
    return token - (documents == nullptr ? 0 : documents[token]);
  }
};

template <class Op>
Tokens tokens_of(const Op& op, const Frame& frame) {
  const std::int64_t first = op.token_first.at(frame.rank);
  const View ids = frame.view(op, op.tokens);
  const View documents = frame.view(op, op.documents);
  FPDT_ASSERT(ids.dtype == Dtype::i32 && ids.elements >= op.rows);
  FPDT_ASSERT(!present(documents) || documents.elements >= first + op.rows);
  return {elements<const std::int32_t>(ids), elements<const std::int32_t>(documents), first};
}

// A table of rows of the op's width. An absent table has no rows.
template <class T>
struct Table {
  T* values;
  std::int64_t rows;

  [[nodiscard]] __device__ bool has(std::int64_t row) const { return row >= 0 && row < rows; }
};
template <class T>
Table<T> table_of(const View& view, std::int64_t width) {
  return {elements<T>(view), view.elements / width};
}

// Napkin: sizeof(T) + sizeof(X) bytes per element, and sizeof(P) more with positions; bound by
// memory. Table rows are read in contiguous pieces: whole sectors.
template <class T, class P, class X>
__global__ void look_up(Tokens tokens, Table<const T> words, Table<const P> positions, X* x,
                        std::int64_t width, float scale, bool packed, bool accumulate) {
  constexpr int N = kCommonPack<T, P, X>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t word = tokens.ids[row];
  const bool positioned = positions.values != nullptr;
  const std::int64_t position = positioned ? tokens.position(row) : 0;
  const bool known = words.has(word) && (!positioned || positions.has(position));
  with_whole(packed, [&](auto whole) {
    for (std::int64_t at = threadIdx.x * N; at < width; at += kThreads * N) {
      float values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = kNan;
      if (known) load_values(whole, words.values + word * width + at, width - at, values);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] *= scale;
      if (known && positioned) {
        float more[N];
        load_values(whole, positions.values + position * width + at, width - at, more);
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] += more[i];
      }
      store_values(whole, x + row * width + at, width - at, values, accumulate);
    }
  });
}

// The gradient. The rows of a slab are sorted by the table row that they add to, and each table row
// adds its own in ascending order. The sums have the same bits as those of a loop over all rows.

constexpr std::int64_t kSlabRows = 1 << 13;
constexpr int kSortThreads = 64;
constexpr int kAddPack = 4;
constexpr std::int32_t kAfterAll = std::numeric_limits<std::int32_t>::max();  // sorts last: no key

// The table row that a row of the chunk adds to; -1 if there is none.
struct Keys {
  Tokens tokens;
  std::int64_t table_rows;
  bool by_position;

  [[nodiscard]] __device__ std::int32_t at(std::int64_t row) const {
    const std::int64_t key = by_position ? tokens.position(row) : tokens.ids[row];
    return key >= 0 && key < table_rows ? static_cast<std::int32_t>(key) : -1;
  }
};

struct Run {
  std::int32_t row;    // of the slab
  std::int32_t count;  // at the first row of a key: how many rows have the key; else 0
};

// runs = the slab's rows, sorted by key and then by row. The place of a row is the number of rows
// before it, found by counting.
//
// Napkin: a thread compares its row with all others, six instructions each: 49 thousand in a full
// slab, 28 us at 1.75 GHz with a warp on each of 256 schedulers. The slab's rows of 4096 columns in
// bf16 are 67 MB. Reads and writes of the table for 2048 words are as much again: 28 us at 4.8
// TB/s.
__global__ void sort_rows(Keys keys, std::int64_t slab, int rows, Run* runs) {
  __shared__ std::int32_t tile[kSortThreads];
  const int own = static_cast<int>(blockIdx.x * kSortThreads + threadIdx.x);
  const std::int32_t mine = own < rows ? keys.at(slab + own) : kAfterAll;
  int less = 0, before = 0, same = 0;
  for (int first = 0; first < rows; first += kSortThreads) {
    const int other = first + static_cast<int>(threadIdx.x);
    __syncthreads();
    tile[threadIdx.x] = other < rows ? keys.at(slab + other) : kAfterAll;
    __syncthreads();
#pragma unroll 16
    for (int i = 0; i < kSortThreads; ++i) {
      const bool equal = tile[i] == mine;
      less += tile[i] < mine ? 1 : 0;
      same += equal ? 1 : 0;
      before += equal && first + i < own ? 1 : 0;
    }
  }
  if (own < rows) runs[less + before] = {own, before == 0 ? same : 0};
}

// Napkin: sizeof(T) bytes per element, and 8 per element of a table row that occurs; bound by
// memory while there are many words. If one word fills all rows of a slab (as padding does), one
// block does the work of a piece of columns: 8192 rows, eight in flight at a time, about 1 ms.
template <class T>
__global__ void add_rows(const Run* runs, Keys keys, std::int64_t slab, const T* dx, float* target,
                         std::int64_t width, float scale, unsigned pieces, bool packed) {
  constexpr int N = kAddPack;
  const Run* own = runs + blockIdx.x / pieces;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x % pieces) * blockDim.x + threadIdx.x) * N;
  const int count = own->count;
  if (count == 0 || column >= width) return;
  const std::int64_t key = keys.at(slab + own->row);
  if (key < 0) return;
  float* to = target + key * width + column;
  with_whole(packed, [&](auto whole) {
    float sums[N];
    load_values(whole, to, width - column, sums);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      float values[N];
      load_values(whole, dx + (slab + own[i].row) * width + column, width - column, values);
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] += scale * values[j];
    }
    store_values(whole, to, width - column, sums);
  });
}

// dtable[key of a row] += scale * that row of dx.
template <class Op>
void add_by_key(const Op& op, const Frame& frame, const Target& field, bool by_position,
                double scale) {
  const View target = frame.view(op, field);
  const View dx = frame.view(op, op.dx);
  if (!present(target)) return;
  FPDT_ASSERT(target.dtype == Dtype::f32 && dx.elements >= op.rows * op.width);
  if (!accumulates(target)) {
    Fill zeros;
    zeros.target = field;
    execute(zeros, Frame{{&target, 1}, frame.rank, frame.stream, frame.scratch});
  }
  const Keys keys{tokens_of(op, frame), target.elements / op.width, by_position};
  FPDT_ASSERT(keys.table_rows <= kAfterAll);
  const bool packed = packs(target, op.width) && packs(dx, op.width);
  const std::int64_t threads =
      std::min<std::int64_t>(kThreads, round_up(div_ceil(op.width, kAddPack), kWarp));
  const std::int64_t pieces = div_ceil(op.width, threads * kAddPack);
  auto* runs = frame.partial<Run>(kSlabRows);
  with_float_type(dx.dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t slab = 0; slab < op.rows; slab += kSlabRows) {
      const std::int64_t rows = std::min(kSlabRows, op.rows - slab);
      launch(sort_rows, grid_of(rows, kSortThreads), kSortThreads, 0, frame.stream, keys, slab,
             static_cast<int>(rows), runs);
      launch(add_rows<T>, grid_of(rows * pieces), static_cast<unsigned>(threads), 0, frame.stream,
             runs, keys, slab, elements<const T>(dx), elements<float>(target), op.width,
             static_cast<float>(scale), static_cast<unsigned>(pieces), packed);
    }
  });
}

}  // namespace

void execute(const Embedding& op, const Frame& frame) {
  const View table = frame.view(op, op.table);
  const View positions = frame.view(op, op.positions);
  const View x = frame.view(op, op.x);
  FPDT_ASSERT(x.elements >= op.rows * op.width);
  const Tokens tokens = tokens_of(op, frame);
  const bool packed = packs(table, op.width) && packs(positions, op.width) && packs(x, op.width);
  with_float_type(table.dtype, [&](auto of_table) {
    const Dtype second = present(positions) ? positions.dtype : table.dtype;
    with_float_type(second, [&](auto of_positions) {
      with_float_type(x.dtype, [&](auto of_x) {
        using T = decltype(of_table);
        using P = decltype(of_positions);
        using X = decltype(of_x);
        launch(look_up<T, P, X>, grid_of(op.rows), kThreads, 0, frame.stream, tokens,
               table_of<const T>(table, op.width), table_of<const P>(positions, op.width),
               elements<X>(x), op.width, static_cast<float>(op.scale), packed, accumulates(x));
      });
    });
  });
}

void execute(const EmbeddingBackward& op, const Frame& frame) {
  add_by_key(op, frame, op.dtable, false, op.scale);
  add_by_key(op, frame, op.dpositions, true, 1);
}

}  // namespace fpdt::cuda
