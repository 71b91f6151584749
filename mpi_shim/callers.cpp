#include "callers.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>

#include "crimp/crimp.h"

namespace crimp {
namespace {

struct Place {
  const void* base = nullptr;  // of the module
  std::string file;
};

Place place_of(const void* address) {
  Dl_info info;
  if (!address || !::dladdr(address, &info)) return {};
  return {info.dli_fbase, info.dli_fname ? info.dli_fname : ""};
}

const Place& this_library() {
  static const Place& p = *new Place(place_of(reinterpret_cast<const void*>(&callers)));  // asked at the very end, too
  return p;
}

bool is_mpi(const Place& place) {
  // Tools define MPI_x, which this is not.
  static const Place& mpi = *new Place(place_of(reinterpret_cast<const void*>(&PMPI_Get_version)));
  return place.base == mpi.base;
}

// A module's reference to the function.
struct Reference {
  std::string file;  // empty: the program
  const MpiFunction* function;
  std::string name;    // as the module has it
  const void* inside;  // the module
  const void* bound;   // what its slot holds; inside the module itself where nothing was called yet
};

ElfW(Word) symbol_of(const ElfW(Rela) & r) {
#if __WORDSIZE == 64
  return static_cast<ElfW(Word)>(ELF64_R_SYM(r.r_info));
#else
  return ELF32_R_SYM(r.r_info);
#endif
}

// One reference per module and function: all of its slots for one name are bound alike, and for MPI_x and PMPI_x hardly
// ever otherwise.
int collect(dl_phdr_info* module, std::size_t, void* found) {
  const ElfW(Dyn)* dynamic = nullptr;
  const ElfW(Addr) base = module->dlpi_addr;
  for (int i = 0; i < module->dlpi_phnum; ++i)
    if (module->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + module->dlpi_phdr[i].p_vaddr);
  if (!dynamic) return 0;
  // glibc has turned these into addresses, except in read-only dynamic sections.
  const auto at = [base](ElfW(Addr) a) { return a < base ? base + a : a; };
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * tables[2] = {};
  std::size_t bytes[2] = {};
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    const ElfW(Addr) value = d->d_un.d_ptr;
    switch (d->d_tag) {
      case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(at(value)); break;
      case DT_STRTAB: strings = reinterpret_cast<const char*>(at(value)); break;
      case DT_RELA: tables[0] = reinterpret_cast<const ElfW(Rela)*>(at(value)); break;
      case DT_RELASZ: bytes[0] = value; break;
      case DT_JMPREL: tables[1] = reinterpret_cast<const ElfW(Rela)*>(at(value)); break;
      case DT_PLTRELSZ: bytes[1] = value; break;
      case DT_PLTREL:
        if (value != DT_RELA) return 0;
        break;
    }
  }
  if (!symbols || !strings) return 0;
  auto& references = *static_cast<std::vector<Reference>*>(found);
  const std::size_t first = references.size();
  for (const int t : {1, 0})
    for (std::size_t i = 0; tables[t] && i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)& r = tables[t][i];
      const ElfW(Word) index = symbol_of(r);
      if (index == 0 || symbols[index].st_shndx != SHN_UNDEF) continue;
      const char* const name = strings + symbols[index].st_name;
      if (*name != 'M' && *name != 'P') continue;
      const MpiFunction* const function = reduction(name);
      const auto same = [function](const Reference& other) { return other.function == function; };
      if (!function || std::any_of(references.begin() + static_cast<std::ptrdiff_t>(first), references.end(), same))
        continue;
      const auto* slot = reinterpret_cast<const void* const*>(base + r.r_offset);
      references.push_back({module->dlpi_name, function, name, dynamic, __atomic_load_n(slot, __ATOMIC_RELAXED)});
    }
  std::sort(references.begin() + static_cast<std::ptrdiff_t>(first), references.end(),
            [](const Reference& a, const Reference& b) { return a.function < b.function; });
  return 0;
}

// A module's own scope, which the dynamic linker searches behind the global one; the program's is the global one.
class Scope {
 public:
  explicit Scope(const char* file) : handle_(::dlopen(file, RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Scope() {
    if (handle_) ::dlclose(handle_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Place find(const char* name) const { return handle_ ? place_of(::dlsym(handle_, name)) : Place(); }
  bool has_crimp() const { return find("crimp_version").base == this_library().base; }

 private:
  void* handle_;
};

bool everywhere = false;

}  // namespace

void note_scope() {
  Dl_info self, first;
  void* const handle = ::dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = handle ? ::dlsym(handle, "crimp_version") : nullptr;
  everywhere = found && ::dladdr(found, &first) && ::dladdr(reinterpret_cast<const void*>(&callers), &self) &&
               first.dli_fbase == self.dli_fbase;
  if (handle) ::dlclose(handle);
}

std::vector<Caller> callers() {
  std::vector<Reference> references;
  ::dl_iterate_phdr(collect, &references);
  const Scope global(nullptr);
  std::vector<Caller> all;
  std::vector<Place> modules, targets;
  for (const auto& r : references) {
    const Scope scope(r.file.empty() ? nullptr : r.file.c_str());
    const Place module = place_of(r.inside);
    Place target = place_of(r.bound);
    if (!target.base || target.base == module.base) target = global.find(r.name.c_str());
    if (!target.base) target = scope.find(r.name.c_str());
    if (module.base == this_library().base) continue;
    if (!target.base) continue;  // a weak reference to what this MPI has not
    all.push_back({r.function, r.file.empty() ? program_file() : r.file, target.file,
                   target.base == this_library().base, is_mpi(target), everywhere || scope.has_crimp()});
    modules.push_back(module);
    targets.push_back(target);
  }
  // Another tool in front of Crimp calls it in its turn; there are no more steps than modules.
  for (std::size_t step = 0; step < all.size(); ++step)
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < all.size(); ++j)
        if (targets[i].base == modules[j].base && all[i].function == all[j].function) {
          all[i].caught |= all[j].caught;
          all[i].past |= all[j].past;
        }
  return all;
}

Caller next_caller() {
  const MpiFunction& function = kReductions[0];
  const Place target = place_of(::dlsym(RTLD_DEFAULT, function.name.data()));
  return {&function, "", target.file, target.base == this_library().base, is_mpi(target), true};
}

std::vector<std::string> loaded_modules() {
  std::vector<std::string> files;
  const auto add = [](dl_phdr_info* module, std::size_t, void* to) {
    auto& list = *static_cast<std::vector<std::string>*>(to);
    if (*module->dlpi_name || list.empty()) list.push_back(*module->dlpi_name ? module->dlpi_name : program_file());
    return 0;
  };
  ::dl_iterate_phdr(add, &files);
  return files;
}

std::string program_file() {
  char path[PATH_MAX];
  const auto n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : "the program";
}

std::string own_file() { return this_library().file; }

}  // namespace crimp
