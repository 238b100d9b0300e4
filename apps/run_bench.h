// fpdt-run bench: measures this machine and writes it down as a cluster.
#pragma once

#include <cstdint>
#include <string>

namespace fpdt {

struct BenchFlags {
  std::string out;  // the cluster file
  std::string name = "cpu-local";
  std::int64_t ranks = 1;
  std::int32_t threads = 0;  // of each rank; 0: its part of the cores
  std::string storage = "bf16";
  std::string device_memory;  // of one rank; "": its share of half of the machine's memory
  std::string host_memory;    // of the machine; "": the other half
  bool quick = false;
  bool json = false;
};

int run_bench(const BenchFlags& flags);

}  // namespace fpdt
