// Golden files lie in the codecs' folders: <x>_golden.txt.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace crimp::test {

// src/codec, or what CODEC_TREE in the environment names in its place.
inline std::filesystem::path codec_tree() {
  const char* tree = std::getenv("CODEC_TREE");
  return tree ? tree : CRIMP_CODEC_DIR;
}

inline std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& folder : std::filesystem::directory_iterator(codec_tree()))
    if (folder.is_directory())
      for (const auto& file : std::filesystem::directory_iterator(folder))
        if (file.path().filename().string().ends_with("_golden.txt")) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace crimp::test
