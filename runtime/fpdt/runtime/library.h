// Shared libraries of devices and networks, loaded at first use. A program that does not use them
// starts without them, takes little memory, and runs on machines that lack them.
//
// The functions of a library form a struct with one line for each, typed as the header declares it:
//
//   struct Zlib {
//     Library library{kZlib};
//     FPDT_FROM_LIBRARY(crc32);
//   };
//   static const Zlib& zlib = *new Zlib;  // loads it
//   zlib.crc32(0, bytes, size);
#pragma once

#include <string>

namespace fpdt {

struct WantedLibrary {
  std::string name;     // for people: cuDNN
  std::string file;     // for the loader: libcudnn.so.9
  std::string version;  // acceptable versions, in words
  std::string folders;  // known at build time, separated by colons
};

// An open library. It is never closed, because other code may use it too.
class Library {
 public:
  // An empty library without functions. Tests fill in their own.
  Library() = default;
  // Opens the first that loads: from the folders of LD_LIBRARY_PATH, then from those of `wanted`,
  // then where the system's loader finds it. Throws InputError, with the wanted version and the
  // places tried, when none loads.
  explicit Library(const WantedLibrary& wanted);

  // A function looked up by name, to be assigned to a pointer of its type. Throws InputError when
  // the library lacks it.
  class Symbol {
   public:
    explicit Symbol(void* address) : address_(address) {}
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address_);
    }

   private:
    void* address_;
  };
  [[nodiscard]] Symbol find(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string path_;  // only the name if the system's loader found it
};

// Declares one member of a table of functions. `library` must be declared before it.
#define FPDT_FROM_LIBRARY(name) decltype(&::name) name = library.find(#name)

}  // namespace fpdt
