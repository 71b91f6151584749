#include "cuda_device.hpp"

#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/settings.hpp"
#include "crimp/crimp.h"

extern char** environ;

namespace crimp::tools {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Lacking(ErrorCode::device_failed, "--device cuda: " + what); }

// Of the driver, which Crimp does not link.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    if (!library_) fail("there is no NVIDIA driver here (" + std::string(::dlerror()) + ")");
  }
  template <class... Argument>
  int call(const char* name, Argument... arguments) const {
    const auto function = reinterpret_cast<int (*)(Argument...)>(::dlsym(library_, name));
    return function ? function(arguments...) : kAbsent;
  }
  template <class... Argument>
  void need(const char* name, Argument... arguments) const {
    const int code = call(name, arguments...);
    if (code == 0) return;
    const char* text = nullptr;
    call("cuGetErrorName", code, &text);
    fail(std::string(name) + (code == kAbsent
                                  ? " is missing in libcuda.so.1"
                                  : " failed: " + (text ? std::string(text) : "error " + std::to_string(code))));
  }

 private:
  static constexpr int kAbsent = -1;
  void* library_;
};

// libcrimp_cuda.so beside libcrimp.so, which this command links, unless CRIMP_CUDA_PLUGIN says otherwise.
std::string plugin_file() {
  std::vector<Complaint> ignored;
  const std::string setting = read_settings(environ, ignored).cuda_plugin;
  Dl_info info;
  if (setting != "auto" || !::dladdr(reinterpret_cast<const void*>(&crimp_allreduce), &info) || !info.dli_fname)
    return setting;
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "libcrimp_cuda.so";
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int index_in(const std::string& text) {
  int index = 0;
  if (const auto colon = text.find(':'); colon != text.npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), index);
  return index;
}

}  // namespace

nlohmann::ordered_json CudaDevice::json() const {
  return {{"index", index}, {"name", name}, {"cuda_of_driver", driver}};
}

bool names_cuda_device(const std::string& text) {
  if (text == "cuda") return true;
  return text.starts_with("cuda:") && text.size() > 5 && text.size() < 9 &&
         text.find_first_not_of("0123456789", 5) == text.npos;
}

std::string cuda_summary() {
  const std::string file = plugin_file();
  std::string text = file == "off" ? "plugin switched off (CRIMP_CUDA_PLUGIN)"
                     : std::filesystem::is_regular_file(file)
                         ? "plugin " + std::filesystem::path(file).filename().string()
                         : "no plugin (it is built where nvcc is found)";
  try {
    const Driver driver;
    int count = 0, version = 0;
    driver.need("cuInit", 0u);
    driver.need("cuDeviceGetCount", &count);
    driver.call("cuDriverGetVersion", &version);
    text += "; driver of CUDA " + version_text(version) + ", devices: " + std::to_string(count);
  } catch (const Error&) {
    text += "; no NVIDIA driver that answers";
  }
  return text;
}

CudaDevice open_cuda_device(const std::string& text) {
  const std::string file = plugin_file();
  if (file == "off") throw Error(ErrorCode::option_invalid, "--device cuda: CRIMP_CUDA_PLUGIN is off");
  const Driver driver;
  driver.need("cuInit", 0u);
  int count = 0, version = 0;
  driver.need("cuDeviceGetCount", &count);
  const int index = index_in(text);
  if (index >= count) fail("there is no device " + std::to_string(index) + ", the driver has " + std::to_string(count));
  void* context = nullptr;
  driver.need("cuDevicePrimaryCtxRetain", &context, index);
  driver.need("cuCtxPushCurrent_v2", context);
  set_device_plugin(file);
  const DevicePlugin* const plugin = device_plugin();
  if (!plugin)
    fail("the plugin '" + file +
         "' cannot be used; it is built where nvcc is found, CRIMP_CUDA_PLUGIN names another file");
  char name[256] = "unknown";
  driver.call("cuDeviceGetName", +name, 256, index);
  driver.call("cuDriverGetVersion", &version);
  return {index, *plugin, plugin->memory(index), name, version_text(version)};
}

}  // namespace crimp::tools
