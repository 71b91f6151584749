// What a file of CRIMP_REPORT says, added up: the numbers that the page, the text and the advice are made of.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace crimp::tools {

// Of some calls. Seconds of one rank's clock.
struct CallSums {
  double calls = 0, bytes_in = 0, sent_bytes = 0, received_bytes = 0;
  double encode_s = 0, wire_s = 0, decode_s = 0, total_s = 0;
  std::optional<double> wait_s;  // for a late rank, beside all of these (CRIMP_SKEW); nothing: not separated
  std::map<std::string, double> why;
  void operator+=(const CallSums&);
  CallSums operator*(double) const;
  double ratio() const { return sent_bytes > 0 ? bytes_in / sent_bytes : 0; }
};

// What calls took, and would have taken otherwise, as far as that is known (core/records.hpp, TimeRecord).
struct TimeSums {
  struct Otherwise {
    double calls = 0, took_s = 0, own_s = 0, s = 0;
  };
  double calls = 0, took_s = 0;
  Otherwise best, plain_measured, plain_predicted;
  // Which of the two says what Crimp has saved. Calls that MPI carried itself are measured, too: alone they save
  // nothing, and fewer than those that are predicted do not speak for them. Null: it is not known.
  const Otherwise* plain() const;
};

// "Per rank": the mean of the ranks. Calls are collective, so of calls it is their number, where all ranks have all.
struct Figures {
  std::string file;
  nlohmann::json report;  // as it was read
  int ranks = 0;
  std::string status;
  std::map<std::string, std::string> settings;
  CallSums all;                                                 // per rank
  std::vector<CallSums> of_rank;                                // each rank's
  std::map<std::string, CallSums> codecs, algorithms, layouts;  // per rank
  std::map<std::uint64_t, CallSums> sizes;                      // per rank, by the least bytes of a class
  TimeSums time;                                                // per rank
  std::map<std::string, double> passed;                         // calls per rank, by name_of(PassReason)
  double steps = 0;                                             // as far as tensors or traces tell; 0: not known
  double errors = 0, unrecorded = 0;                            // of all ranks
  double passed_calls() const;
  double setting(const std::string& name) const;  // as a number; 0 where it is none
};

// Throws Error{argument_invalid}, which names the file and says what is wrong.
Figures read_figures(const std::string& file);
Figures figures_of(nlohmann::json report, const std::string& file);

// Of an object that may lack it: 0, as for null, which is how JSON writes NaN. Throws std::runtime_error where it is
// something else than a number.
double number_in(const nlohmann::json& object, const char* key);
std::string text_in(const nlohmann::json& object, const char* key);
// Likewise; an empty object or array where it is not there.
const nlohmann::json& object_in(const nlohmann::json& object, const char* key);
const nlohmann::json& array_in(const nlohmann::json& object, const char* key);

// Of an object of calls, as reports have them; separated: whether it has what they waited for a late rank.
CallSums sums_in(const nlohmann::json& object, bool separated);

std::string percent(double share);  // "12 %"

}  // namespace crimp::tools
