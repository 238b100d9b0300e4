// docs/reference/json.md against what the programs print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fpdt::test {

// Expects a row of the page for every key of the JSON objects in `output`, each on a line of its
// own, with the type of its value. `section`: "fpdt-plan search". `prefix`: of the keys in the
// page.
void expect_documented(std::string_view section, std::string_view output,
                       std::string_view prefix = "");

// The names of all keys of the page, without those that stand for a name.
std::vector<std::string> documented_names();

}  // namespace fpdt::test
