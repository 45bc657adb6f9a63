#include "compare/plugin.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <stdexcept>
#include <vector>

#include "contract/assay_plugin.h"
#include "contract/line.h"

namespace assay {

namespace {

constexpr int kProbeMilliseconds = 10000;
constexpr size_t kMessageBytes = 4096;

struct EntryPoints {
  decltype(&assay_plugin_abi) abi = nullptr;
  decltype(&assay_plugin_name) name = nullptr;
  decltype(&assay_plugin_supports) supports = nullptr;
  decltype(&assay_plugin_run) run = nullptr;
};

template <class F>
bool resolve(void* library, const char* symbol, F& out) {
  out = reinterpret_cast<F>(dlsym(library, symbol));
  return out != nullptr;
}

// Runs the library's constructors: only for a process that may be lost.
Result<EntryPoints> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);   // never closed: kernels may have started threads
  if (!library) return Error{"cannot load plugin " + path + ": " + dlerror(), 0, ""};
  EntryPoints e;
  const char* missing = !resolve(library, "assay_plugin_abi", e.abi)             ? "assay_plugin_abi"
                        : !resolve(library, "assay_plugin_name", e.name)         ? "assay_plugin_name"
                        : !resolve(library, "assay_plugin_supports", e.supports) ? "assay_plugin_supports"
                        : !resolve(library, "assay_plugin_run", e.run)           ? "assay_plugin_run"
                                                                                 : nullptr;
  if (missing)
    return Error{"plugin " + path + " does not export " + missing, 0, "declare it extern \"C\" with default visibility: contract/assay_plugin.h"};
  if (const uint32_t abi = e.abi(); abi < ASSAY_PLUGIN_OLDEST_ABI || abi > ASSAY_PLUGIN_ABI)
    return Error{"plugin " + path + " has interface version " + std::to_string(abi) + ", this program has " + std::to_string(ASSAY_PLUGIN_OLDEST_ABI) + " to " +
                     std::to_string(ASSAY_PLUGIN_ABI), 0,
                 "compile it with this contract/assay_plugin.h"};
  return e;
}

// What a child process that loads `path` says: empty when all is well, else why not.
std::string probe(const std::string& path) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe for a child process: " + std::string(std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return "no child process: " + std::string(std::strerror(errno));
  }
  if (child == 0) {
    close(ends[0]);
    const auto loaded = load(path);
    const std::string said = loaded ? "+" : "-" + loaded.error().text();
    const ssize_t written = write(ends[1], said.data(), said.size());
    _exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  pollfd wait{ends[0], POLLIN, 0};
  bool late = false;
  for (char chunk[512];;) {
    if (poll(&wait, 1, kProbeMilliseconds) <= 0) {
      late = true;
      break;
    }
    const ssize_t n = read(ends[0], chunk, sizeof chunk);
    if (n <= 0) break;
    said.append(chunk, static_cast<size_t>(n));
  }
  close(ends[0]);
  if (late) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (late) return "plugin " + path + " did not finish loading in " + std::to_string(kProbeMilliseconds / 1000) + " s";
  if (said == "+") return {};
  if (said.starts_with('-')) return said.substr(1);
  return "plugin " + path + " ended the process that loaded it" +
         (WIFSIGNALED(status) ? " (signal " + std::to_string(WTERMSIG(status)) + ", " + strsignal(WTERMSIG(status)) + ")" : "");
}

class PluginSubject final : public Subject {
 public:
  explicit PluginSubject(std::string path) : path_(std::move(path)) {
    std::string stem = std::filesystem::path(path_).stem().string();
    if (stem.starts_with("lib")) stem.erase(0, 3);
    name_ = "plugin:" + stem;
  }

  std::string_view name() const override { return name_; }
  std::string argument() const override { return "--plugin " + path_; }

  Support present() const override {
    if (!probed_) {
      why_absent_ = probe(path_);
      probed_ = true;
    }
    return {why_absent_.empty(), why_absent_};
  }

  Support supports(const Problem& p) const override {
    char why[kMessageBytes] = "";
    const bool yes = entry_points().supports(to_canonical_line(p).c_str(), why, sizeof why) != 0;
    why[sizeof why - 1] = '\0';
    return {yes, yes ? "" : why[0] ? why : "the plugin gives no reason"};
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment&) override {
    const EntryPoints& e = entry_points();
    std::vector<assay_plane> in, out;
    std::list<std::vector<assay_member>> members;   // a list: planes point into it
    for (const ConstBuffer& b : inputs) in.push_back(describe(*b.plane, const_cast<std::byte*>(b.bytes.data()), b.bytes.size(), members));
    for (const Buffer& b : outputs) out.push_back(describe(*b.plane, b.bytes.data(), b.bytes.size(), members));
    char message[kMessageBytes] = "";
    const int status = e.run(to_canonical_line(p).c_str(), in.data(), in.size(), out.data(), out.size(), message, sizeof message);
    message[sizeof message - 1] = '\0';
    if (status != 0) throw std::runtime_error("plugin returned " + std::to_string(status) + ": " + (message[0] ? message : "no reason given"));
    return {e.name(), 0};
  }

 private:
  static assay_plane describe(const Plane& plane, std::byte* data, size_t bytes, std::list<std::vector<assay_member>>& members) {
    std::vector<assay_member>& own = members.emplace_back();
    for (const Member& m : plane.members) own.push_back({m.offset, m.logical.rows, m.logical.cols, m.padded.rows, m.padded.cols});
    return {plane.name.c_str(), info(plane.encoding).name.data(), plane.logical.rows, plane.logical.cols, plane.padded.rows, plane.padded.cols,
            data, bytes, plane.packed, own.empty() ? nullptr : own.data(), own.size()};
  }

  const EntryPoints& entry_points() const {
    if (!loaded_) {
      auto e = load(path_);
      if (!e) throw std::runtime_error(e.error().text());
      loaded_ = *e;
    }
    return *loaded_;
  }

  std::string path_, name_;
  mutable std::optional<EntryPoints> loaded_;
  mutable bool probed_ = false;
  mutable std::string why_absent_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_plugin_subject(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || access(path.c_str(), R_OK) != 0)
    return Error{"plugin " + path + " is no readable file", 0, "--plugin takes the path of a shared library"};
  // dlopen looks a bare file name up in the system's library folders; the file that was named is meant.
  return std::unique_ptr<Subject>(new PluginSubject(std::filesystem::absolute(path).string()));
}

}  // namespace assay
