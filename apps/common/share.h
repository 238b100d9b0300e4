// The models, clusters and strategies that come with fpdt, which flags may call by name.
//
// They are in the source tree, and `cmake --install` copies them to share/fpdt. The build makes a
// folder of links at the same place relative to its programs, so both are found in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fpdt {

enum class Shelf : std::uint8_t { models, clusters, strategies };

// The file that the value of a flag means: the value itself if it names a file or folder that
// exists, else the file of that name on the shelf, or the model whose source has that name on a hub
// (Qwen/Qwen3-8B), else the value if it has a '/'. InputError, with what is near, when there is
// none.
std::string find_shared(Shelf shelf, std::string_view flag, const std::string& value);

// The names on a shelf, sorted; empty when there is no such folder.
std::vector<std::string> shared_names(Shelf shelf);
// The file of a name on the shelf.
std::string shared_file(Shelf shelf, std::string_view name);

}  // namespace fpdt
