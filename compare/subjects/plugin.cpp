#include "compare/subjects/plugin.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "compare/process/float_environment.h"
#include "compare/text/shell.h"
#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "contract/own_order.h"

namespace assay {

namespace {

constexpr int kProbeMilliseconds = 10000;
constexpr size_t kMessageBytes = 4096;

struct EntryPoints {
  decltype(&assay_plugin_abi) abi = nullptr;
  decltype(&assay_plugin_name) name = nullptr;
  decltype(&assay_plugin_supports) supports = nullptr;
  decltype(&assay_plugin_run) run = nullptr;
  decltype(&assay_plugin_time) time = nullptr;  // null: the library has none
  bool on_device = false;
  // What loading the library left, as it does in the programs of its users: FTZ, say, where it is linked with
  // -ffast-math. Every call runs under it.
  FloatEnvironment floats;
};

template <class F> bool resolve(void* library, const char* symbol, F& out) {
  out = reinterpret_cast<F>(dlsym(library, symbol));
  return out != nullptr;
}

// Runs the library's constructors: only for a process that may be lost.
Result<EntryPoints> load(const std::string& path) {
  const ForeignFloats restored;
  void* library =
      dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: kernels may have started threads
  if (!library) return Error{"cannot load plugin " + path + ": " + dlerror(), 0, ""};
  EntryPoints e;
  e.floats = FloatEnvironment::now();
  const char* missing = !resolve(library, "assay_plugin_abi", e.abi)             ? "assay_plugin_abi"
                        : !resolve(library, "assay_plugin_name", e.name)         ? "assay_plugin_name"
                        : !resolve(library, "assay_plugin_supports", e.supports) ? "assay_plugin_supports"
                        : !resolve(library, "assay_plugin_run", e.run)           ? "assay_plugin_run"
                                                                                 : nullptr;
  if (missing)
    return Error{"plugin " + path + " does not export " + missing, 0,
                 "declare it extern \"C\" with default visibility: contract/assay_plugin.h"};
  if (const uint32_t abi = e.abi(); abi < ASSAY_PLUGIN_OLDEST_ABI || abi > ASSAY_PLUGIN_ABI)
    return Error{"plugin " + path + " has interface version " + std::to_string(abi) + ", this program has " +
                     std::to_string(ASSAY_PLUGIN_OLDEST_ABI) + " to " + std::to_string(ASSAY_PLUGIN_ABI),
                 0, "compile it with this contract/assay_plugin.h"};
  if (e.abi() < 3) return e;
  resolve(library, "assay_plugin_time", e.time);
  if (decltype(&assay_plugin_memory) memory = nullptr; resolve(library, "assay_plugin_memory", memory)) {
    const int where = memory();
    if (where != ASSAY_MEMORY_HOST && where != ASSAY_MEMORY_DEVICE)
      return Error{fmt::format("plugin {}: assay_plugin_memory returned {}, expected ASSAY_MEMORY_HOST ({}) "
                               "or ASSAY_MEMORY_DEVICE ({})",
                               path, where, ASSAY_MEMORY_HOST, ASSAY_MEMORY_DEVICE),
                   0, ""};
    e.on_device = where == ASSAY_MEMORY_DEVICE;
  }
  return e;
}

struct Probed {
  std::string why_absent;  // empty when all is well
  bool on_device = false;
};

// What a child process that loads `path` says.
Probed probe(const std::string& path, const DeviceMemory* device) {
  const auto absent = [](const std::string& why) { return Probed{why, false}; };
  int ends[2];
  if (pipe(ends) != 0) return absent("no pipe for a child process: " + std::string(std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return absent("no child process: " + std::string(std::strerror(errno)));
  }
  if (child == 0) {
    close(ends[0]);
    const auto loaded = load(path);
    std::string said = !loaded ? "-" + loaded.error().text() : loaded->on_device ? "device" : "host";
    if (loaded && loaded->on_device)
      if (const Support here =
              device ? device->present() : Support{false, "this program has no device memory to give"};
          !here.yes)
        said = "*it takes device pointers (assay_plugin_memory): " + here.why;
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
  if (late)
    return absent("plugin " + path + " did not finish loading in " +
                  std::to_string(kProbeMilliseconds / 1000) + " s");
  if (said == "host" || said == "device") return {"", said == "device"};
  if (said.starts_with('-')) return absent(said.substr(1));
  if (said.starts_with('*')) return {said.substr(1), true};
  return absent("plugin " + path + " ended the process that loaded it" +
                (WIFSIGNALED(status) ? " (signal " + std::to_string(WTERMSIG(status)) + ", " +
                                           strsignal(WTERMSIG(status)) + ")"
                                     : ""));
}

// One plane on the device, between guard bytes, at an address that is a multiple of `alignment` and of no
// larger power of two up to the guard.
class DeviceBlock {
 public:
  DeviceBlock(DeviceMemory& device, std::string name, std::span<const std::byte> bytes, size_t alignment)
      : device_(device), name_(std::move(name)), bytes_(bytes.size()) {
    first_ = kGuard + (alignment < kGuard ? alignment : 0);
    image_.assign(first_ + bytes_ + kGuard, kGuardByte);
    std::copy(bytes.begin(), bytes.end(), image_.begin() + static_cast<std::ptrdiff_t>(first_));
    block_ = static_cast<std::byte*>(device_.allocate(image_.size()));
    device_.to_device(block_, image_.data(), image_.size());
  }
  ~DeviceBlock() { device_.release(block_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  std::byte* data() const { return block_ + first_; }

  // Copies the bytes back, and says which byte around them was written; for an input also which of its own.
  // Empty: none.
  std::string fetch(std::span<std::byte> out, bool input) {
    const std::vector<std::byte> before = input ? image_ : std::vector<std::byte>{};
    device_.to_host(image_.data(), block_, image_.size());
    const auto from = image_.begin() + static_cast<std::ptrdiff_t>(first_),
               to = from + static_cast<std::ptrdiff_t>(bytes_);
    std::copy_n(from, out.size(), out.begin());
    const auto changed = [](std::byte b) { return b != kGuardByte; };
    if (const auto after = std::find_if(to, image_.end(), changed); after != image_.end())
      return fmt::format("{}: byte {} past the end was written ({:02X})", name_, after - to,
                         static_cast<unsigned>(*after));
    if (const auto ahead = std::find_if(image_.begin(), from, changed); ahead != from)
      return fmt::format("{}: byte {} before the start was written ({:02X})", name_, from - ahead,
                         static_cast<unsigned>(*ahead));
    if (input && image_ != before)
      return fmt::format("{}: byte {} of this input was written", name_,
                         std::mismatch(image_.begin(), image_.end(), before.begin()).first - from);
    return {};
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr std::byte kGuardByte{0xC3};
  DeviceMemory& device_;
  std::string name_;
  size_t bytes_ = 0, first_ = 0;
  std::vector<std::byte> image_;
  std::byte* block_ = nullptr;
};

class PluginSubject final : public Subject {
 public:
  PluginSubject(std::string path, std::shared_ptr<DeviceMemory> device)
      : path_(std::move(path)), device_(std::move(device)) {
    std::string stem = std::filesystem::path(path_).stem().string();
    if (stem.starts_with("lib")) stem.erase(0, 3);
    name_ = "plugin:" + stem;
  }

  std::string_view name() const override { return name_; }
  std::string argument() const override { return "--plugin " + shell_word(path_); }

  Support present() const override { return {probed().why_absent.empty(), probed().why_absent}; }
  bool on_device() const { return loaded_ ? loaded_->on_device : probed().on_device; }

  Support supports(const Problem& p) const override {
    char why[kMessageBytes] = "";
    const EntryPoints& e = entry_points();
    const std::string line = to_canonical_line(p);
    const ForeignFloats floats(e.floats);
    const bool yes = e.supports(line.c_str(), why, sizeof why) != 0;
    if (const std::string left = floats.left(); !left.empty())
      throw Trespass("assay_plugin_supports " + left);
    why[sizeof why - 1] = '\0';
    return {yes, yes ? "" : why[0] ? why : "the plugin gives no reason"};
  }

  std::optional<std::string> unpinned(const Problem& p) const override {
    const std::optional<std::string> why = own_on_gpu(p);
    return !why || on_device() ? why : own_order(p);  // the library is asked only where it matters
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const EntryPoints& e = entry_points();
    Call call(p);
    if (!e.on_device) {
      for (const ConstBuffer& b : inputs) call.add_input(*b.plane, const_cast<std::byte*>(b.bytes.data()));
      for (const Buffer& b : outputs) call.add_output(*b.plane, b.bytes.data());
      if (const std::string left = call.run(e); !left.empty()) throw Trespass(left);
      return {name_in(e), 0};
    }
    std::list<DeviceBlock> in, out;
    const auto alignment = [&](const Plane& plane) {
      return std::max<size_t>(static_cast<size_t>(env.alignment),
                              static_cast<size_t>(info(plane.encoding).bytes()));
    };
    for (const ConstBuffer& b : inputs)
      call.add_input(*b.plane, in.emplace_back(device(), b.plane->name, b.bytes, alignment(*b.plane)).data());
    for (const Buffer& b : outputs)
      call.add_output(*b.plane,
                      out.emplace_back(device(), b.plane->name, b.bytes, alignment(*b.plane)).data());
    const std::string left = call.run(e);
    synchronize();
    std::string trespass;
    auto block = out.begin();
    for (const Buffer& b : outputs)
      if (const std::string found = (block++)->fetch(b.bytes, false); trespass.empty()) trespass = found;
    for (DeviceBlock& b : in)
      if (const std::string found = b.fetch({}, true); trespass.empty()) trespass = found;
    if (trespass.empty()) trespass = left;
    if (!trespass.empty()) throw Trespass(trespass);
    return {name_in(e), 0};
  }

  std::vector<std::chrono::nanoseconds> time(const Problem& p, std::span<const ConstBuffer> inputs,
                                             int repeats, bool cold) override {
    const EntryPoints& e = entry_points();
    if (!e.time && !e.on_device) return {};
    Call call(p);
    const std::vector<Plane> planes = output_planes(p);
    std::list<DeviceBlock> blocks;
    std::list<std::vector<std::byte>> buffers;
    for (const ConstBuffer& b : inputs)
      call.add_input(*b.plane, e.on_device
                                   ? blocks.emplace_back(device(), b.plane->name, b.bytes, kAlignment).data()
                                   : const_cast<std::byte*>(b.bytes.data()));
    for (const Plane& plane : planes) {
      std::vector<std::byte>& bytes = buffers.emplace_back(plane.bytes() + kAlignment);
      const size_t skew = (kAlignment - reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment) % kAlignment;
      call.add_output(
          plane,
          e.on_device
              ? blocks.emplace_back(device(), plane.name, std::span(bytes).first(plane.bytes()), kAlignment)
                    .data()
              : bytes.data() + skew);
    }
    if (e.time) {
      std::vector<uint64_t> nanoseconds(static_cast<size_t>(repeats));
      char message[kMessageBytes] = "";
      const ForeignFloats restored(e.floats);
      const int status = e.time(call.line.c_str(), call.in.data(), call.in.size(), call.out.data(),
                                call.out.size(), repeats, cold, nanoseconds.data(), message, sizeof message);
      message[sizeof message - 1] = '\0';
      if (status != 0 && status != ASSAY_NOT_TIMED)
        throw std::runtime_error(fmt::format("assay_plugin_time returned {}: {}", status,
                                             message[0] ? message : "no reason given"));
      if (status == 0 && std::find(nanoseconds.begin(), nanoseconds.end(), 0u) != nanoseconds.end())
        throw std::runtime_error("assay_plugin_time stored a time of 0");
      if (status == 0) return {nanoseconds.begin(), nanoseconds.end()};
      if (!e.on_device) return {};
    }
    return device().time([&] { call.run(e); }, repeats, cold);
  }

 private:
  static constexpr size_t kAlignment = 256;

  // The arguments of one call.
  struct Call {
    explicit Call(const Problem& p) : line(to_canonical_line(p)) {}
    void add_input(const Plane& plane, std::byte* data) { in.push_back(describe(plane, data)); }
    void add_output(const Plane& plane, std::byte* data) { out.push_back(describe(plane, data)); }
    // Says how the library left the float environment; empty: as it was.
    std::string run(const EntryPoints& e) const {
      char message[kMessageBytes] = "";
      const ForeignFloats floats(e.floats);
      const int status =
          e.run(line.c_str(), in.data(), in.size(), out.data(), out.size(), message, sizeof message);
      message[sizeof message - 1] = '\0';
      if (status != 0)
        throw std::runtime_error("plugin returned " + std::to_string(status) + ": " +
                                 (message[0] ? message : "no reason given"));
      const std::string left = floats.left();
      return left.empty() ? left : "it " + left;
    }
    std::string line;
    std::vector<assay_plane> in, out;

   private:
    assay_plane describe(const Plane& plane, std::byte* data) {
      std::vector<assay_member>& own = members_.emplace_back();
      for (const Member& m : plane.members)
        own.push_back({m.offset, m.logical.rows, m.logical.cols, m.padded.rows, m.padded.cols});
      return {plane.name.c_str(),
              info(plane.encoding).name.data(),
              plane.logical.rows,
              plane.logical.cols,
              plane.padded.rows,
              plane.padded.cols,
              data,
              plane.bytes(),
              plane.packed,
              own.empty() ? nullptr : own.data(),
              own.size()};
    }
    std::list<std::vector<assay_member>> members_;  // a list: planes point into it
  };

  static std::string name_in(const EntryPoints& e) {
    const ForeignFloats restored(e.floats);
    return e.name();
  }

  DeviceMemory& device() const {
    if (!device_)
      throw std::runtime_error(path_ +
                               " takes device pointers, and this program has no device memory to give");
    return *device_;
  }

  // An error of the device stays with this process, and every later call would meet it: the process ends, so
  // that it costs one case.
  void synchronize() const {
    try {
      device().synchronize();
    } catch (const std::exception& e) {
      fmt::print(stderr, "{}\n", e.what());
      std::fflush(stderr);
      std::_Exit(1);
    }
  }

  const Probed& probed() const {
    if (!probed_) probed_ = probe(path_, device_.get());
    return *probed_;
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
  std::shared_ptr<DeviceMemory> device_;
  mutable std::optional<EntryPoints> loaded_;
  mutable std::optional<Probed> probed_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_plugin_subject(const std::string& path,
                                                     std::shared_ptr<DeviceMemory> device) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || access(path.c_str(), R_OK) != 0)
    return Error{"plugin " + path + " is not a readable file", 0,
                 "--plugin takes the path of a shared library"};
  // dlopen looks a bare file name up in the system's library folders; the file that was named is meant.
  return std::unique_ptr<Subject>(
      new PluginSubject(std::filesystem::absolute(path).lexically_normal().string(), std::move(device)));
}

bool takes_device_pointers(const Subject& subject) {
  const auto* plugin = dynamic_cast<const PluginSubject*>(&subject);
  return plugin && plugin->on_device();
}

}  // namespace assay
