// The sizes of each bench length, for CPUs and for GPUs.
#include "fpdt/bench/extent.h"

namespace fpdt {
namespace {

constexpr std::int64_t kKibi = 1 << 10;
constexpr std::int64_t kMebi = 1 << 20;

}  // namespace

BenchExtent cpu_extent(BenchLength length) {
  BenchExtent all;
  all.working_set = Bytes{32 * kMebi};
  all.product_sizes = {32, 64, 128, 256, 512, 1024};
  all.product_most = 4096;
  all.heads = 4;
  all.kv_heads = 2;
  all.head_dim = 64;
  all.tile_rows = {64, 128, 256, 512, 1024, 2048};
  all.fit_rows = 1024;
  all.narrow_head = 32;
  all.wide_head = 128;
  all.rows = all.width = 512;
  all.copy_sizes = {2 * kMebi};
  all.collective_sizes = {64 * kKibi, 2 * kMebi};
  all.copy_bytes = all.collective_bytes = 2 * kMebi;
  all.company = 256;
  all.least_ops = 1;
  all.least_behind = 0;
  all.pace = all.long_pace = {20e-3, 7};
  if (length == BenchLength::brief) {
    all.product_sizes = {256, 512, 1024};
    all.tile_rows = {512, 1024, 2048};
    all.collective_sizes = {all.collective_bytes};
  }
  if (length != BenchLength::quick) return all;
  all.working_set = Bytes{kMebi};
  all.product_sizes = all.tile_rows = {32, 64};
  all.product_most = 256;
  all.fit_rows = all.rows = all.width = all.company = 64;
  all.copy_sizes = all.collective_sizes = {kMebi / 4};
  all.copy_bytes = all.collective_bytes = kMebi / 4;
  all.pace = all.long_pace = {1e-3, 2};
  return all;
}

// Few tile sizes, because a cuDNN plan takes half a second for each. The caches of an H200 hold 60
// MiB.
BenchExtent gpu_extent(BenchLength length) {
  BenchExtent all;
  all.working_set = Bytes{512 * kMebi};
  all.product_sizes = {128, 512, 1 * kKibi, 2 * kKibi, 4 * kKibi, 8 * kKibi, 16 * kKibi};
  all.product_most = 16 * kKibi;
  all.heads = 8;
  all.kv_heads = 2;
  all.head_dim = 128;
  all.tile_rows = {2 * kKibi, 4 * kKibi, 8 * kKibi, 16 * kKibi, 64 * kKibi};
  all.fit_rows = 16 * kKibi;
  all.narrow_head = 64;
  all.wide_head = 128;
  all.others_rows = {2 * kKibi, 8 * kKibi};
  all.rows = 16 * kKibi;
  all.width = 4 * kKibi;
  all.copy_sizes = {4 * kMebi, 64 * kMebi, 256 * kMebi, 1024 * kMebi};
  all.collective_sizes = {kMebi, 8 * kMebi, 64 * kMebi, 256 * kMebi};
  all.copy_bytes = all.collective_bytes = 64 * kMebi;
  all.company = 4 * kKibi;
  all.least_ops = 32;
  all.least_behind = 4 * kKibi;
  all.pace = {50e-3, 5};
  all.long_pace = {500e-3, 4};
  if (length == BenchLength::brief) {
    all.product_sizes = {4 * kKibi, 8 * kKibi, 16 * kKibi};
    all.tile_rows = {8 * kKibi, 32 * kKibi, 64 * kKibi};
    all.fit_rows = 8 * kKibi;
    all.others_rows = {8 * kKibi};
    all.copy_sizes = {64 * kMebi, 1024 * kMebi};
    all.collective_sizes = {kMebi, 64 * kMebi};
  }
  if (length != BenchLength::quick) return all;
  all.working_set = Bytes{kMebi};
  all.product_sizes = {128, 256};
  all.product_most = 512;
  all.heads = all.kv_heads = 1;
  all.tile_rows = {128, 256};
  all.fit_rows = 128;
  all.others_rows = {128};
  all.rows = all.width = 128;
  all.copy_sizes = {kMebi / 4, kMebi};
  all.collective_sizes = {kMebi / 4};
  all.copy_bytes = all.collective_bytes = kMebi / 4;
  all.company = all.least_behind = 128;
  all.pace = all.long_pace = {1e-3, 2};
  return all;
}

}  // namespace fpdt
