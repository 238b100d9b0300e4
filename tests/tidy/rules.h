// The rules of CONTRIBUTING.md that a program can check. Each function takes the tree and returns
// one line per breach, "file:line: rule: what to do".
#pragma once

#include <string>
#include <vector>

#include "source.h"

namespace fpdt::tidy {

using Breaches = std::vector<std::string>;

Breaches layers(const Tree& tree);  // a library includes only what its row of the table allows
Breaches third_parties(const Tree& tree);   // yaml-cpp and JSON in io, Eigen in cpu, CLI11 in apps
Breaches sizes(const Tree& tree);           // of lines, functions and files
Breaches repeated_types(const Tree& tree);  // one type for one name in a namespace
Breaches banned_text(const Tree& tree);
Breaches opening_comments(const Tree& tree);
Breaches unlisted_sources(const Tree& tree);    // that no CMakeLists.txt builds
Breaches untested_headers(const Tree& tree);    // among the public ones
Breaches broken_links(const Tree& tree);        // between documents, to their headings too
Breaches undocumented_words(const Tree& tree);  // of the schedule format
Breaches undocumented_codes(const Tree& tree);  // of diagnostics

}  // namespace fpdt::tidy
