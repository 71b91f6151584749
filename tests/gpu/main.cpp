// The suites of kernels on a GPU. Exit status 77 where none answers.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "support/cuda_device.hpp"

int main(int argc, char** argv) {
  if (const std::string why = crimp::test::no_device(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
