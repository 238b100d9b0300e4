// Shared libraries of devices and networks, loaded when they are first needed: a program that does
// not use them starts without them, in little memory, and on machines that have none.
//
// The functions of a library are a struct with a line for each, typed as its header declares them:
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
  std::string name;     // as people call it: cuDNN
  std::string file;     // as the system's loader knows it: libcudnn.so.9
  std::string version;  // those that will do, in words
  std::string folders;  // that the build knew, with colons between them
};

// An open library. It stays open until the program ends: others may have loaded it too.
class Library {
 public:
  // None, with no functions: tests fill in their own.
  Library() = default;
  // The first that opens: in the folders of LD_LIBRARY_PATH, in those of `wanted`, or where the
  // system's loader finds it. InputError with the version that is wanted and the places that were
  // tried when none does.
  explicit Library(const WantedLibrary& wanted);

  // A function by its name, to be assigned to a pointer of its type. InputError when the library
  // has no such function.
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
  std::string path_;  // or only its name, where the system's loader found it
};

// A member of a table of functions; `library` is a member before it.
#define FPDT_FROM_LIBRARY(name) decltype(&::name) name = library.find(#name)

}  // namespace fpdt
