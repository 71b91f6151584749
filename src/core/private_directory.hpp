// Files of a directory that are read and written by this user's jobs alone. As core/output_file.hpp: nothing here
// blocks on what is no file, throws for what the system refuses, or sends a signal; what cannot be done is a sentence
// that names the file and says why.
//
// Names are those of entries of the directory, without '/'. The directory itself may be reached through links, its
// files may not: a link is neither followed nor written through.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace crimp {

// Bytes from a beginning to an end.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;             // of all of them
  virtual bool get(void* to, std::size_t bytes) = 0;  // the next ones; false: there are not so many, or an error
};

class PrivateDirectory {
 public:
  // Nothing is opened yet. A relative path means what it means now.
  explicit PrivateDirectory(const std::string& path);
  const std::string& path() const { return path_; }

  // The directory, where it is missing (mode 0700, whatever the umask); its parent is not made. Empty, or why it cannot
  // be.
  std::string make() const;
  using Put = std::function<void(const void* bytes, std::size_t count)>;
  // A file complete under its name or not at all: `fill` writes it by put(), into a temporary file (".crimp-...", mode
  // 0600) that is then written to the disk and renamed over the name, whatever that was but a directory. A missing
  // directory is made. No umask changes the mode. Empty: done. What fill() throws is
  // thrown, and nothing has changed.
  std::string write(const std::string& name, const std::function<void(const Put&)>& fill) const;
  // Of regular files that belong to this user; what else is there is among `others`. Empty, or why they cannot be
  // listed; a directory that is missing has no names.
  std::string list(std::vector<std::string>& names, std::vector<std::string>* others = nullptr) const;
  // A regular file that belongs to this user and that no other one may write. Null: `problem` says why.
  std::unique_ptr<ByteSource> open(const std::string& name, std::string& problem) const;
  void remove(const std::string& name) const;  // where it is there
  // This user's files of write() that was killed on its way: nobody has written to them for a day.
  void remove_unfinished() const;

 private:
  std::string path_;
};

}  // namespace crimp
