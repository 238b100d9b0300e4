// One deflate stream of zlib.
#include "fpdt/io/gzip.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#define ZLIB_CONST  // zlib reads through const pointers
#include <zlib.h>

namespace fpdt {

std::string gzip(std::string_view text) {
  constexpr int kGzip = 16;  // added to the window's bits: a gzip header instead of zlib's
  constexpr int kMemory = 8;
  z_stream stream{};
  const int begun = deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip,
                                 kMemory, Z_DEFAULT_STRATEGY);
  if (begun != Z_OK) throw std::bad_alloc();
  std::string packed;
  std::array<Bytef, 1 << 16> piece{};
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    // zlib counts what it may read in 32 bits.
    const std::size_t most = std::numeric_limits<uInt>::max();
    const auto taken = static_cast<uInt>(std::min(text.size(), most));
    stream.next_in = reinterpret_cast<const Bytef*>(text.data());
    stream.avail_in = taken;
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(piece.size());
    state = deflate(&stream, taken == text.size() ? Z_FINISH : Z_NO_FLUSH);
    text.remove_prefix(taken - stream.avail_in);
    packed.append(reinterpret_cast<const char*>(piece.data()), piece.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return packed;
}

}  // namespace fpdt
