// The answers to a row of questions that differ in one thing (chunk, length, devices, budget) as
// curves: step time, throughput, device and host memory, side by side.
#pragma once

#include <string>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct SweepPoint {
  std::string label;       // where it stands on the axis, such as "64K"
  std::string binding;     // what does not fit; "": it fits
  double seconds = 0;      // of a step; 0: not known
  double seconds_low = 0;  // the range that the machine's rates leave; 0: none
  double seconds_high = 0;
  double tokens_per_second = 0;  // of one device; 0: not known
  Bytes device;                  // peak of one device; 0: not known
  Bytes host;                    // peak of pinned memory, of one node; 0: not known
};

struct SweepPicture {
  std::string title;
  std::string subtitle;
  std::string axis;       // what differs, such as "tokens of a chunk"
  Bytes device_capacity;  // 0: no line
  Bytes host_capacity;
  std::vector<SweepPoint> points;
};

std::string sweep_svg(const SweepPicture& picture);

}  // namespace fpdt
