// Files that Crimp writes into somebody else's job. Nothing here blocks on what is no file, throws for what the system
// refuses, or sends a signal: what cannot be written is a sentence that names the file and says why, as errno's text.
#pragma once
#include <string>
#include <string_view>

namespace crimp {

// A file that is written once: complete under its name or not at all, by a temporary file beside it (".crimp-...") that
// is renamed.
//
// The permissions of a file that was there stay where it was this user's; else they are a new file's. Setuid, setgid
// and sticky bits never stay.
//
// Legal names: of a regular file, new or not, or of a link to one (not another user's in a directory that all may write
// to); /dev/stdout and /dev/stderr, which mean the
// process's descriptors 1 and 2; and character devices. FIFOs, sockets, directories and block devices are refused.
// Devices, and files whose directory lets nothing be made or replaced (a file mounted into a container), are written in
// place.
class OutputFile {
 public:
  // The name means what it means now: a relative one does not follow the working directory.
  explicit OutputFile(const std::string& name);

  // Whether writing both would leave one of them only: a regular file, by whatever names.
  bool is(const OutputFile& other) const;
  // Why it could not be written now; empty: it could. Tried by making the temporary file, of which nothing stays.
  std::string obstacle() const;
  // Empty: written. Otherwise as obstacle(), and what the file held before it still holds (unless it was written in
  // place).
  std::string write(std::string_view text) const;

 private:
  std::string path_;
  int descriptor_ = -1;  // of the process, where the name means that
};

// Adds `text` to the end of a regular file or a character device by one write, so that texts of several processes do
// not mix; a new file is made. Empty: done. Otherwise as OutputFile::obstacle().
std::string append_to_file(const std::string& name, std::string_view text);

}  // namespace crimp
