// The page of published beside predicted numbers, docs/results/published.md.
#pragma once

#include <string>
#include <vector>

#include "cells.h"

namespace fpdt::test {

// The differences that count as agreement: points of MFU, and a share of the device's memory.
inline constexpr double kMfuPoints = 5;
inline constexpr double kMemoryShare = 0.1;

// All of it but the answers (answers.h). predicted[i][j]: of cell j of source i.
std::string page(const std::vector<Source>& sources,
                 const std::vector<std::vector<Predicted>>& predicted,
                 const std::vector<Miss>& misses);
// The table in the README: the longest runs of panels and sources to which nothing was fitted, and
// the cell that misses most.
std::string readme_table(const std::vector<Source>& sources,
                         const std::vector<std::vector<Predicted>>& predicted);
std::vector<std::vector<Predicted>> predict_all(const std::vector<Source>& sources);

}  // namespace fpdt::test
