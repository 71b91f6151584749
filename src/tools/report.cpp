// crimp report: what reports of CRIMP_REPORT say, for people (a page, a text) and for programs.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/output_file.hpp"
#include "report/digest.hpp"
#include "report/page.hpp"

namespace crimp::tools {
namespace {

constexpr std::size_t kMostReports = 8;

void put(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error("standard output could not be written");
}

}  // namespace

int report(Arguments arguments) {
  std::vector<std::string> files;
  std::string output;
  bool json = false, text = false;
  CommandLine app(
      "Shows what a job did, by the file that CRIMP_REPORT wrote: bytes and time saved, where a step's time goes, ranks, tensors, what passed\n"
      "through and why, and what to try next. Several reports stand side by side.",
      "crimp report");
  app.option("reports", files, "What CRIMP_REPORT wrote, 1 to 8 files");
  const auto page = app.option("-o,--output", output, "Write an HTML page, one file that needs no other");
  app.flag("--json", json, "Print the figures as JSON");
  app.flag("--text", text, "Print them as text: without -o and --json it is what is done");
  if (const auto code = app.parse(arguments)) return *code;
  if (files.empty())
    throw Error(ErrorCode::argument_invalid,
                "crimp report needs a file that CRIMP_REPORT wrote, as in crimp report report.json -o report.html");
  if (files.size() > kMostReports)
    throw Error(ErrorCode::argument_invalid,
                "crimp report was given " + std::to_string(files.size()) + " files; legal are 1 to 8");
  if (json && text) throw Error(ErrorCode::argument_invalid, "--json and --text both print: give one of them");
  if (page.given() && output.empty()) throw Error(ErrorCode::argument_invalid, "--output needs the name of a file");

  nlohmann::ordered_json digests = nlohmann::ordered_json::array();
  for (const std::string& file : files) digests.push_back(digest_of(read_figures(file)));
  const std::string as_text = text_of(digests);
  if (page.given()) {
    // A slip of the hand would cost the report.
    for (const std::string& file : files)
      if (OutputFile(output).is(OutputFile(file)))
        throw Error(ErrorCode::argument_invalid, "--output: '" + output + "' is the report '" + file + "' itself");
    if (const std::string why = OutputFile(output).write(page_of(digests, as_text)); !why.empty())
      throw std::runtime_error("--output: " + why);
  }
  if (json) put(digests.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  else if (text || !page.given()) put(as_text);
  return 0;
}

}  // namespace crimp::tools
