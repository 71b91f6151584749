/* A program without MPI, which opens a library and runs it (opened.c). */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*const run)(int) = library ? (int (*)(int))dlsym(library, "run") : NULL;
  if (!run) return fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: opening LIBRARY"), 2;
  return run(argc - 2);
}
