// A library for library_test.cpp to load.
extern "C" int fpdt_answer(int question) { return question + 1; }
