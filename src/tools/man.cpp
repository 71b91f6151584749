// crimp man: manual pages.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "commands.hpp"
#include "core/output_file.hpp"
#include "exit_code.hpp"
#include "manual_page.hpp"

namespace crimp::tools {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  const std::string why =
      error ? "'" + file.string() + "' cannot be written: " + error.message() : OutputFile(file.string()).write(text);
  if (!why.empty()) throw std::runtime_error("man: " + why);
}

}  // namespace

int man(Arguments arguments) {
  std::string name = "crimp", all, header;
  bool list = false;
  CommandLine app(
      "Prints a manual page, made from the tables that the command itself goes by.\n\n"
      "  crimp man run | man -l -",
      "crimp man");
  app.option("page", name,
             "crimp (without: this one), crimp-run or run, crimp-settings or settings, ...; --list has all")
      .completes("none");
  app.flag("--list", list, "Print the names of all pages with their sections");
  app.option("--all", all, "Write all pages into this directory, as man1/crimp.1").completes("directory");
  app.option("--header", header, "With --all: crimp.h, whose page is man3/crimp.3");
  if (const auto code = app.parse(std::move(arguments))) return *code;
  if (list) {
    for (const ManualPage& page : manual_pages()) std::printf("%s(%d)\n", page.name.c_str(), page.section);
    return kDone;
  }
  if (!header.empty() && all.empty())
    throw Error(ErrorCode::argument_invalid, "man: --header is of --all; give the directory, too");
  if (!all.empty()) {
    for (const ManualPage& page : manual_pages()) {
      const std::string section = std::to_string(page.section);
      write(std::filesystem::path(all) / ("man" + section) / (page.name + "." + section), page.text());
    }
    if (header.empty()) return kDone;
    std::ifstream stream(header, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    if (!stream || text.empty()) throw Error(ErrorCode::argument_invalid, "man: '" + header + "' cannot be read");
    write(std::filesystem::path(all) / "man3" / "crimp.3", manual_of_header(text));
    return kDone;
  }
  for (const ManualPage& page : manual_pages())
    if (page.name == name || page.name == "crimp-" + name) return std::fputs(page.text().c_str(), stdout), kDone;
  throw Error(ErrorCode::argument_invalid, "man: there is no page '" + name + "'; crimp man --list has all");
}

}  // namespace crimp::tools
