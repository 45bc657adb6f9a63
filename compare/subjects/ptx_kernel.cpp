#include "compare/subjects/ptx_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "compare/subjects/forwarding.h"
#include "compare/subjects/ptx_arguments.h"
#include "compare/subjects/ptx_case_names.h"
#include "compare/subjects/ptx_dependence.h"
#include "compare/subjects/ptx_launch_file.h"
#include "compare/subjects/ptx_texts.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "contract/own_order.h"
#include "contract/words.h"
#include "fast/ptx/run.h"
#include "fast/ptx/slice.h"
#include "fixtures/fill.h"

namespace assay {

namespace {

using What = PtxArgument::What;
constexpr F32Bits kOne = 0x3F800000;

std::string to_text(const ptx::Dim& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

// What a launch may take before it is taken to hang: instructions of warps, which an endless loop of a branch
// alone takes in about half of the time that a run has, and half of that time of the processor, which ends
// loops whose instructions do more.
struct Limits {
  uint64_t instructions = 0;
  double seconds = 0;
};
Limits limits_of(double timeout) {
  constexpr double kEachSecond = 5e7;
  const double seconds = std::clamp(timeout, 1.0, 1e4);
  return {static_cast<uint64_t>(seconds * kEachSecond), seconds / 2};
}

// The modules of one run.
class Modules {
 public:
  explicit Modules(const Texts& texts) {
    for (const auto& [path, text] : texts) modules_.try_emplace(path, text);
  }
  ptx::Module& of(const PtxLaunch& l) { return modules_.at(l.ptx); }

 private:
  std::map<std::string, ptx::Module> modules_;
};

KernelName kernel_name(const PtxLaunch& l) { return {l.ptx, l.entry}; }

// One run: the planes, scratch memory that the launches share, and what was counted.
class Run {
 public:
  Run(const PtxLaunchFile& file, Modules& modules, const Problem& p, std::span<const ConstBuffer> inputs,
      std::span<const Buffer> outputs, const Environment& env, const Limits& limits)
      : file_(file),
        modules_(modules),
        problem_(p),
        planes_(all_planes(inputs, outputs)),
        names_(p, planes_),
        is_empty_(std::any_of(planes_.begin(), planes_.end(),
                              [](const Plane& plane) { return plane.logical.count() == 0; })),
        env_(env),
        limits_(limits) {
    for (const ConstBuffer& b : inputs) {
      if (std::find(file.zeroed.begin(), file.zeroed.end(), b.plane->name) != file.zeroed.end())
        throw std::runtime_error(
            (file.launches.front().where.empty() ? "--zeroed names " : "\"zeroed\" names ") + b.plane->name +
            ", which is an input of the line; expected outputs alone");
      if (file.fused() && b.plane->name == "x") addresses_["x"] = made(b.bytes.size());
      else add(b.plane->name, b.bytes.data(), b.bytes.size(), false, true);
    }
    for (const Buffer& b : outputs) {
      const bool zeroed =
          std::find(file.zeroed.begin(), file.zeroed.end(), b.plane->name) != file.zeroed.end();
      // N6.7: under the flag nothing is written, not even the zeros of the caller.
      if (zeroed && noop_of(p) != kOne) std::fill(b.bytes.begin(), b.bytes.end(), std::byte{0});
      add(b.plane->name, b.bytes.data(), b.bytes.size(), true, zeroed);
    }
  }

  // Launches in order, with these pairs fused. Returns how many there were.
  int launch_all(const Fused& fused = {}) {
    int launched = 0;
    for (const PtxLaunch& l : file_.launches) {
      const auto pairs = fused.find(kernel_name(l));
      if (pairs == fused.end()) {
        launched += launch(l, nullptr);
      } else {
        const ptx::Kernel kernel = ptx::contracted(modules_.of(l).kernel(l.entry), pairs->second);
        launched += launch(l, &kernel);
      }
    }
    return launched;
  }
  const ptx::Counters& counters() const { return counters_; }
  // Launches that follow move the results of approximate functions (RunOptions::perturb).
  void perturb(uint64_t how, uint32_t line) { perturb_ = how, perturb_line_ = line; }
  // Launches that follow are recorded.
  void record(ptx::Recorder& recorder) { recorder_ = &recorder; }
  // Launches that follow are counted, each into a row of its own.
  void count(std::vector<LaunchCounts>& counts) { counts_ = &counts; }
  // What the kernels made x of; empty where they are given it.
  std::span<const std::byte> made_x() const { return made_x_; }

 private:
  static std::vector<Plane> all_planes(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs) {
    std::vector<Plane> planes;
    for (const ConstBuffer& b : inputs) planes.push_back(*b.plane);
    for (const Buffer& b : outputs) planes.push_back(*b.plane);
    return planes;
  }
  void add(const std::string& name, const std::byte* data, size_t bytes, bool writable, bool written) {
    memory_.add(data, bytes, name, writable, written);
    addresses_[name] = reinterpret_cast<uint64_t>(data);
  }

  ptx::Launch sizes_of(const PtxLaunch& l, const ptx::Entry& e) const {
    // Of an empty line a size may be 0: then nothing is launched.
    const auto size = [&](const std::string& text, Bounds bounds, const char* key) {
      if (is_empty_) bounds.least = 0;
      return static_cast<unsigned>(names_.integer(text, bounds, l.called(key)));
    };
    const auto of_grid = [&](size_t place) { return size(l.grid[place], grid_bounds(place), "grid"); };
    const auto of_block = [&](size_t place) { return size(l.block[place], block_bounds(place), "block"); };
    ptx::Launch out;
    out.grid = {of_grid(0), of_grid(1), of_grid(2)};
    if (l.block[0].empty()) out.block = {e.required_block[0], e.required_block[1], e.required_block[2]};
    else out.block = {of_block(0), of_block(1), of_block(2)};
    out.dynamic_shared = size(l.shared, shared_bounds(), "shared");
    return out;
  }

  ptx::Counters carry_out(const PtxLaunch& l, const ptx::Launch& launch, const ptx::Kernel* in_place) {
    ptx::Module& module = modules_.of(l);
    try {
      return ptx::run(module, l.entry, launch, memory_,
                      {.order = env_.order,
                       .poison = env_.poison,
                       .count = counts_ != nullptr,
                       .check = env_.order != Environment::kForward,
                       .stores_at_once = file_.stores_at_once,
                       .products_at_once = file_.products_at_once,
                       .shuffles_any = file_.shuffles_any,
                       .generic_as_shared = file_.generic_as_shared,
                       .perturb = perturb_,
                       .perturb_line = perturb_line_,
                       .recorder = recorder_,
                       .in_place = in_place,
                       .most_instructions = limits_.instructions,
                       .most_seconds = limits_.seconds});
    } catch (const ptx::Fault& e) {
      throw std::runtime_error(e.what() + advice(l, launch, module.text(), e.what()));
    }
  }

  // What to type where the launch may be at fault.
  std::string advice(const PtxLaunch& l, const ptx::Launch& launch, std::string_view text,
                     std::string_view fault) const {
    if (fault.find("outside shared memory") != fault.npos && text.find(".extern .shared") != text.npos)
      return "; " + l.called("shared") + " is " + std::to_string(launch.dynamic_shared) +
             ", the bytes that the launch gives to .extern .shared";
    if (fault.find("a launch that does not end") == fault.npos) return "";
    const std::string blocks =
        launch.grid.count() == 1
            ? ""
            : "; blocks run one after the other here, so that one that waits for a later one waits forever";
    return "; a launch may take " + std::to_string(limits_.instructions) + " instructions of warps and " +
           fmt::format("{:g}", limits_.seconds) + " s of the processor, and more under a greater --timeout" +
           blocks;
  }

  bool launch(const PtxLaunch& l, const ptx::Kernel* in_place) {
    ptx::Module& module = modules_.of(l);
    const ptx::Entry& e = module.entry(l.entry);
    ptx::Launch out = sizes_of(l, e);
    if (out.grid.count() == 0 && is_empty_) return false;  // nothing is launched
    out.parameters.resize(e.parameter_bytes);
    for (size_t n = 0; n < l.args.size(); ++n) {
      const std::vector<std::byte> bytes = value_of(l.args[n], e.parameters[n].bytes, l.called(l.args[n]));
      std::copy(bytes.begin(), bytes.end(),
                out.parameters.begin() + static_cast<std::ptrdiff_t>(e.parameters[n].offset));
    }
    const ptx::Counters counted = carry_out(l, out, in_place);
    counters_.add(counted);
    if (counts_) {
      counts_->push_back(counts_of(module, l.entry, out, counted));
      counts_->back().symbol = l.entry;
      counts_->back().text = l.ptx;
      counts_->back().dynamic_shared = out.dynamic_shared;
    }
    return true;
  }

  static LaunchCounts counts_of(ptx::Module& module, const std::string& entry, const ptx::Launch& launch,
                                const ptx::Counters& counters) {
    LaunchCounts out{
        entry, to_text(launch.grid), to_text(launch.block), ptx::totals_of(counters), ptx::line_columns(),
        {}};
    for (auto& line : ptx::by_line(module.kernel(entry), counters, module.text()))
      out.lines.push_back({line.line, std::move(line.text), std::move(line.source), std::move(line.counts)});
    return out;
  }
  std::vector<std::byte> value_of(const PtxArgument& a, size_t bytes, const std::string& where) {
    uint64_t v = 0;
    switch (a.what) {
      case What::plane: v = addresses_.at(a.text); break;
      case What::null:
      case What::zeros: break;
      case What::f32: v = names_.f32(a.text, where); break;
      // Nearest even; the constants of launches are no NaN.
      case What::bf16: v = names_.f32(a.text, where), v = (v + 0x7FFF + (v >> 16 & 1)) >> 16; break;
      case What::scratch:
      case What::poison: v = scratch(a, where); break;
      case What::raw: v = drawn("raw", problem_.x.fill, problem_.x.shape); break;
      case What::drawn:
        v = drawn(a.spelled.substr(0, a.spelled.find(':')), other_fill(a.name),
                  {1, size_of_memory(a, where)});
        break;
      case What::bytes: return digits(a.text);
      case What::map: return map(a, bytes, where);
      default: v = static_cast<uint64_t>(names_.integer(a.text, a.bounds(), where));
    }
    std::vector<std::byte> out(bytes);
    std::memcpy(out.data(), &v, std::min(bytes, sizeof v));
    return out;
  }
  uint64_t scratch(const PtxArgument& a, const std::string& where) {
    if (const auto shared = addresses_.find("scratch." + a.name);
        !a.name.empty() && shared != addresses_.end())
      return shared->second;
    const auto bytes = static_cast<size_t>(size_of_memory(a, where));
    std::byte* at = aligned(bytes, a.what == What::scratch ? std::byte{0} : std::byte{env_.poison});
    add(a.name.empty() ? a.spelled : "scratch." + a.name, at, bytes, true, a.what == What::scratch);
    return reinterpret_cast<uint64_t>(at);
  }
  int64_t size_of_memory(const PtxArgument& a, const std::string& where) const {
    return static_cast<int64_t>(names_.integer(a.text, memory_bounds(), where));
  }
  std::byte* aligned(size_t bytes, std::byte fill) {
    constexpr size_t kAlign = 256;
    auto& block = scratch_.emplace_back(bytes + kAlign, fill);
    return reinterpret_cast<std::byte*>(ptx::align_up(reinterpret_cast<uint64_t>(block.data()), kAlign));
  }
  // Memory for the x that a fused kernel makes.
  uint64_t made(size_t bytes) {
    std::byte* at = aligned(bytes, std::byte{env_.poison});
    made_x_ = {at, bytes};
    add("x", at, bytes, true, false);
    return reinterpret_cast<uint64_t>(at);
  }
  // A tensor that no plane of the line is.
  uint64_t drawn(const std::string& name, const Fill& fill, Shape shape) {
    if (const auto there = addresses_.find(name); there != addresses_.end()) return there->second;
    const auto bytes = static_cast<size_t>(shape.count() * info(problem_.x.source).bytes());
    std::byte* at = aligned(bytes, std::byte{0});
    if (const auto error = fill_tensor(fill, problem_.x.source, shape, {at, bytes}))
      throw std::runtime_error("\"" + name + "\": " + error->text());
    add(name, at, bytes, false, true);
    return reinterpret_cast<uint64_t>(at);
  }
  // A bell-shaped tensor of a seed that the line's seed and the name give.
  Fill other_fill(const std::string& name) const {
    Fill fill;
    fill.seed = problem_.x.fill.seed + 1;
    for (const char c : name) fill.seed = fill.seed * 31 + static_cast<unsigned char>(c);
    return fill;
  }
  // The map itself, or a pointer to it.
  std::vector<std::byte> map(const PtxArgument& a, size_t bytes, const std::string& where) {
    const auto plane =
        std::find_if(planes_.begin(), planes_.end(), [&](const Plane& p) { return p.name == a.name; });
    const auto integer = [&](const std::string& text) {
      return static_cast<int64_t>(names_.integer(text, map_bounds(), where));
    };
    PtxArgument memory{PtxArgument::What::scratch, a.size, a.name, "scratch." + a.name + ":" + a.size, ""};
    std::vector<std::byte> out = a.size.empty() ? tensor_map_of(a, *plane, addresses_.at(a.name), integer)
                                                : tensor_map_of(a, Plane{}, scratch(memory, where), integer);
    if (bytes == out.size()) return out;
    std::byte* at = aligned(out.size(), std::byte{0});
    std::copy(out.begin(), out.end(), at);
    add(a.spelled, at, out.size(), false, true);
    const auto address = reinterpret_cast<uint64_t>(at);
    out.resize(bytes);
    std::memcpy(out.data(), &address, sizeof address);
    return out;
  }
  static std::vector<std::byte> digits(const std::string& hex) {
    std::vector<std::byte> out;
    for (size_t n = 0; n + 1 < hex.size(); n += 2)
      out.push_back(static_cast<std::byte>(std::stoi(hex.substr(n, 2), nullptr, 16)));
    return out;
  }

  const PtxLaunchFile& file_;
  Modules& modules_;
  const Problem& problem_;
  std::vector<Plane> planes_;
  CaseNames names_;
  bool is_empty_;  // some plane has no element
  const Environment& env_;
  Limits limits_;
  ptx::Memory memory_;
  std::map<std::string, uint64_t> addresses_;
  std::vector<std::vector<std::byte>> scratch_;
  std::span<const std::byte> made_x_;
  ptx::Counters counters_;
  ptx::Recorder* recorder_ = nullptr;
  std::vector<LaunchCounts>* counts_ = nullptr;
  uint64_t perturb_ = 0;
  uint32_t perturb_line_ = 0;
};

// Memory that begins where an allocator of a GPU would put it: which sectors and lines a request touches does
// not follow from the heap of this process.
class Placed {
 public:
  Placed(size_t bytes, std::byte fill) : block_(bytes + kAlign, fill), size_(bytes) {}
  std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(ptx::align_up(reinterpret_cast<uint64_t>(block_.data()), kAlign)),
            size_};
  }

 private:
  static constexpr size_t kAlign = 256;
  std::vector<std::byte> block_;
  size_t size_;
};

// Memory for the outputs of a case.
struct Outputs {
  Outputs(const Problem& p, uint8_t poison) : planes(output_planes(p)) {
    for (const Plane& plane : planes) memory.emplace_back(plane.bytes(), std::byte{poison});
    for (size_t n = 0; n < planes.size(); ++n) buffers.push_back({&planes[n], memory[n].bytes()});
  }
  std::vector<Plane> planes;
  std::vector<Placed> memory;
  std::vector<Buffer> buffers;
};

// Copies of the inputs of a case.
struct Inputs {
  explicit Inputs(std::span<const ConstBuffer> given) {
    for (const ConstBuffer& b : given) memory.emplace_back(b.bytes.size(), std::byte{0});
    for (size_t n = 0; n < given.size(); ++n) {
      std::copy(given[n].bytes.begin(), given[n].bytes.end(), memory[n].bytes().begin());
      buffers.push_back({given[n].plane, memory[n].bytes()});
    }
  }
  std::vector<Placed> memory;
  std::vector<ConstBuffer> buffers;
};

class PtxKernelSubject final : public Subject {
 public:
  PtxKernelSubject(const std::string& path, std::string argument, PtxLaunchFile file, Texts texts,
                   double timeout)
      : argument_(std::move(argument)),
        name_("ptx:" + std::filesystem::path(path).stem().string()),
        file_(std::move(file)),
        texts_(std::move(texts)),
        limits_(limits_of(timeout)) {}

  std::string_view name() const override { return name_; }
  std::string argument() const override { return argument_; }
  std::optional<std::string> unpinned(const Problem& p) const override { return own_order(p); }

  Support supports(const Problem& p) const override {
    const std::string line = to_canonical_line(p);
    const Words words = words_of(line, ' ');
    for (const std::string& word : file_.words)
      if (std::find(words.begin(), words.end(), word) == words.end())
        return {false, "its launch file is for \"" + word + "\""};
    std::vector<Plane> inputs = input_planes(p), outputs = output_planes(p);
    const auto is = [](const std::string& name) {
      return [&name](const Plane& plane) { return plane.name == name; };
    };
    std::vector<std::string> used;
    for (const PtxLaunch& l : file_.launches)
      for (const PtxArgument& a : l.args)
        if (a.what == What::plane || (a.what == What::map && a.size.empty())) {
          const std::string& plane = a.what == What::map ? a.name : a.text;
          if (std::none_of(inputs.begin(), inputs.end(), is(plane)) &&
              std::none_of(outputs.begin(), outputs.end(), is(plane)))
            return {false, "the line has no plane " + plane};
          used.push_back(plane);
        }
    // A kernel that does not look at the flag must not pass where the flag happens to be 0.
    if (std::any_of(inputs.begin(), inputs.end(), is("noop")) &&
        std::find(used.begin(), used.end(), "noop") == used.end())
      return {false, "the line has noop=, and no launch is given noop"};
    for (const Plane& plane : outputs)
      if (std::find(used.begin(), used.end(), plane.name) == used.end())
        return {false, "no launch is given " + plane.name};
    return {};
  }

  std::string own_words() const override {
    return join(std::vector<std::string_view>(file_.words.begin(), file_.words.end()), " ");
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    if (env.alignment < file_.alignment)
      throw Unsupported("its pointers are multiples of " + std::to_string(file_.alignment) +
                        ", and alignment=" + std::to_string(env.alignment) + " breaks that promise");
    std::vector<std::vector<std::byte>> before;
    for (const Buffer& b : outputs) before.emplace_back(b.bytes.begin(), b.bytes.end());
    // Variables of a module keep what a run leaves in them: every run begins with a module of its own.
    Modules modules(texts_);
    Run run(file_, modules, p, inputs, outputs, env, limits_);
    const int launches = run.launch_all();
    if (file_.fused()) check_made(p, run.made_x(), find(inputs, "x")->bytes);
    std::string by;
    for (const PtxLaunch& l : file_.launches) by += (by.empty() ? "" : ", ") + l.entry;
    by += "; " + std::to_string(run.counters().lane_instructions) + " lane instructions";
    for (const auto& [where, lanes] : run.counters().unpinned)
      by += "; not pinned: " + std::to_string(lanes) + " lanes of " + where;
    // What takes many times as many instructions as the first run does not end.
    constexpr uint64_t kMore = 4, kAtLeast = 1u << 20;
    const Limits limits{std::min(limits_.instructions, kMore * run.counters().lane_instructions + kAtLeast),
                        limits_.seconds};
    const Again again{*this, p, inputs, outputs, run.made_x(), before, limits};
    std::vector<LaunchedKernel> kernels;
    for (const PtxLaunch& l : file_.launches)
      kernels.push_back({kernel_name(l), &modules.of(l).kernel(l.entry)});
    by += depends_on_contraction(kernels, again) + depends_on_approximation(kernels, run.counters(), again);
    return {by, launches};
  }

  std::vector<SliceStep> slice(const Problem& p, std::span<const ConstBuffer> inputs, std::string_view plane,
                               size_t bit, size_t bits, const Environment& env) override {
    Outputs made(p, env.poison);
    const auto run_all = [&](ptx::Recorder& recorder) {
      Modules modules(texts_);
      Run run(file_, modules, p, inputs, made.buffers, env, limits_);
      run.record(recorder);
      run.launch_all();
    };
    std::vector<SliceStep> out;
    for (const ptx::SliceStep& s :
         ptx::slice_behind(run_all, std::string(plane), bit, static_cast<unsigned>(bits)))
      out.push_back({s.text, s.line,
                     s.source.file.empty() ? "" : s.source.file + ":" + std::to_string(s.source.line),
                     s.kernel + " block " + to_text(s.block), s.thread, s.memory, s.offset,
                     s.predicate ? "pred" : std::string(ptx::info(s.type).name), s.value});
    return out;
  }

  bool interprets() const override { return true; }
  std::vector<LaunchCounts> count(const Problem& p, std::span<const ConstBuffer> inputs,
                                  const Environment& env) override {
    const Inputs placed(inputs);
    Outputs made(p, env.poison);
    Modules modules(texts_);
    Run run(file_, modules, p, placed.buffers, made.buffers, env, limits_);
    std::vector<LaunchCounts> out;
    run.count(out);
    run.launch_all();
    return out;
  }

  void prepare(const Problem& p, std::span<const ConstBuffer> inputs, std::span<std::byte> x) override {
    if (!file_.fused() || x.empty() || !supports(p).yes) return;
    Outputs made(p, 0);
    const Environment environment;
    Modules modules(texts_);
    Run run(file_, modules, p, inputs, made.buffers, environment, limits_);
    run.launch_all();
    std::copy(run.made_x().begin(), run.made_x().end(), x.begin());
  }

 private:
  // The x that this run made must be that of the run before it, by which the op is judged.
  static void check_made(const Problem& p, std::span<const std::byte> made, std::span<const std::byte> x) {
    const auto [at, other] = std::mismatch(made.begin(), made.end(), x.begin(), x.end());
    if (at == made.end()) return;
    const int64_t element = (at - made.begin()) / info(p.x.source).bytes();
    throw std::runtime_error(
        "the x that the kernel made of its raw input differs from that of its first run, "
        "or from the x that this case is given, at row " +
        std::to_string(element / p.x.shape.cols) + ", column " + std::to_string(element % p.x.shape.cols));
  }

  // A run once more in another way than that which gave `outputs`; `before` is what these held then.
  struct Again {
    const PtxKernelSubject& subject;
    const Problem& problem;
    std::span<const ConstBuffer> inputs;
    std::span<const Buffer> outputs;
    std::span<const std::byte> made_x;
    const std::vector<std::vector<std::byte>>& before;
    Limits limits;
    PtxRerun operator()(const PtxChange& change) const {
      std::vector<std::vector<std::byte>> bytes = before;
      std::vector<Buffer> again;
      for (size_t n = 0; n < outputs.size(); ++n) again.push_back({outputs[n].plane, bytes[n]});
      Modules own(subject.texts_);
      const Environment environment;
      Run run(subject.file_, own, problem, inputs, again, environment, limits);
      run.perturb(change.perturb, change.perturb_line);
      try {
        run.launch_all(change.fused);
      } catch (const std::runtime_error& e) {
        return {false, e.what()};
      }
      if (!std::equal(made_x.begin(), made_x.end(), run.made_x().begin(), run.made_x().end())) return {};
      for (size_t n = 0; n < outputs.size(); ++n)
        if (!std::equal(bytes[n].begin(), bytes[n].end(), outputs[n].bytes.begin())) return {};
      return {true, ""};
    }
  };

  std::string argument_, name_;
  PtxLaunchFile file_;
  Texts texts_;
  Limits limits_;
};

}  // namespace

namespace {

// `path` is what the user named: a launch file or the text itself. `argument` names it again.
Result<std::unique_ptr<Subject>> subject_of(const std::string& path, const std::string& argument,
                                            PtxLaunchFile file, double timeout) {
  auto texts = read_texts(path, file);
  if (!texts) return texts.error();
  return std::unique_ptr<Subject>(
      new PtxKernelSubject(path, argument, std::move(file), std::move(*texts), timeout));
}

}  // namespace

Result<std::unique_ptr<Subject>> make_ptx_kernel_subject(const std::string& path, double timeout) {
  auto file = read_ptx_launch_file(path);
  if (!file) return file.error();
  return subject_of(path, "--ptx-kernel " + shell_word(path), std::move(*file), timeout);
}

Result<std::unique_ptr<Subject>> make_ptx_kernel_subject(const PtxLaunchWords& words, double timeout) {
  auto file = launch_file_of(words);
  if (!file) return file.error();
  return subject_of(words.ptx, to_options(words), std::move(*file), timeout);
}

std::unique_ptr<Subject> reference_behind(std::unique_ptr<Subject> reference, Subject& kernel) {
  class Behind final : public ForwardingSubject {
   public:
    Behind(std::unique_ptr<Subject> subject, Subject& kernel)
        : ForwardingSubject(std::move(subject), "reference"), kernel_(kernel) {}
    void prepare(const Problem& p, std::span<const ConstBuffer> inputs, std::span<std::byte> x) override {
      kernel_.prepare(p, inputs, x);
    }

   private:
    Subject& kernel_;
  };
  return std::make_unique<Behind>(std::move(reference), kernel);
}

}  // namespace assay
