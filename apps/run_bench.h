// fpdt-run bench: measures this machine and writes it down as a cluster.
#pragma once

#include <cstdint>
#include <string>

#include "machine.h"

namespace fpdt {

struct BenchFlags {
  std::string out;  // the cluster file
  std::string name;
  std::int64_t ranks = 1;
  MachineFlags backend;
  std::string storage = "bf16";
  // Of one rank; "": its share of half of the machine's, or of the GPU's. The file's host memory is
  // that of `backend`; "": the other half; beside a GPU, nine tenths of what is free.
  std::string device_memory;
  double peak_flops = 0;  // of the data sheet; 0: of the fastest product
  std::string declared;   // cluster file whose rates stand until they are measured
  bool brief = false;
  bool quick = false;
  bool json = false;
};

int run_bench(const BenchFlags& flags);

}  // namespace fpdt
