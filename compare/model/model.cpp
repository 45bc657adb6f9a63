#include "compare/model/model.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <unordered_map>

#include "compare/model/launches.h"
#include "compare/model/pipes.h"
#include "contract/line.h"
#include "contract/planes.h"

namespace assay::model {

namespace {

// The product of "(64,2,1)".
double product_of(const std::string& text) {
  std::istringstream in(text.substr(std::min<size_t>(1, text.size())));
  double product = 1;
  for (std::string one; std::getline(in, one, ',');) product *= std::strtod(one.c_str(), nullptr);
  return product;
}

size_t column_of(const LaunchCounts& l, std::string_view name) {
  return static_cast<size_t>(std::find(l.columns.begin(), l.columns.end(), name) - l.columns.begin());
}

// What the lines of the PTX add to the totals: instructions by pipe, requests by width.
void add_line_totals(const LaunchCounts& l, Totals& out) {
  const size_t warps = column_of(l, "warps"), lanes = column_of(l, "lanes"),
               requests = column_of(l, "requests"), bytes = column_of(l, "bytes");
  for (const LaunchCounts::Line& line : l.lines) {
    const auto n = static_cast<double>(line.counts.at(warps));
    if (const auto pipe = pipe_of_ptx(line.instruction)) {
      out["ptx " + std::string(kPipes[static_cast<size_t>(*pipe)].name)] += n;
      out["ptx all"] += n;
    }
    if (line.counts.at(requests) == 0 || line.counts.at(lanes) == 0) continue;
    const uint64_t wide = line.counts.at(bytes) / line.counts.at(lanes);
    const bool load = line.instruction.find("ld.") != std::string::npos;
    const bool store = line.instruction.find("st.") != std::string::npos;
    if (load || store)
      out[(load ? "loads of " : "stores of ") + std::to_string(wide) + " bytes"] +=
          static_cast<double>(line.counts.at(requests));
  }
}

// The counts of one launch at one size, those of its machine instructions among them.
Totals totals_of_launch(const LaunchCounts& l, const Result<Machine>& machine,
                        std::vector<std::string>* unknown) {
  Totals out;
  for (const auto& [name, n] : l.totals) out[name] = static_cast<double>(n);
  out["blocks"] = product_of(l.grid);
  add_line_totals(l, out);
  if (!machine || !machine->sass) return out;
  std::unordered_map<uint32_t, uint64_t> warps;
  const size_t column = column_of(l, "warps");
  for (const LaunchCounts::Line& line : l.lines) warps[line.line] = line.counts.at(column);
  const SassCounts sass = count_sass(*machine->sass, warps);
  for (const PipeInfo& pipe : kPipes)
    out["sass " + std::string(pipe.name)] = sass.by_pipe[static_cast<size_t>(pipe.pipe)];
  out["sass all"] = sass.all, out["sass local"] = sass.local;
  if (unknown) *unknown = sass.unknown;
  return out;
}

Work work_of(const LaunchModel& l) {
  Work w;
  w.blocks = l.total("blocks"), w.threads = l.threads;
  constexpr double kSector = 32;
  w.bytes_read = kSector * l.total("distinct sectors read");
  w.bytes_written = kSector * l.total("distinct sectors written");
  w.partial_writes = l.total("global store partial sectors");
  w.lines = l.total("global load lines") + l.total("global store lines") + l.total("shared wavefronts");
  const std::string from = l.sass ? "sass " : "ptx ";
  w.warp_instructions = l.total(from + "all");
  for (const PipeInfo& pipe : kPipes)
    w.by_pipe[static_cast<size_t>(pipe.pipe)] = l.total(from + std::string(pipe.name));
  return w;
}

using Counted = std::vector<std::pair<double, std::vector<LaunchCounts>>>;  // elements, launches

// Launch n of every size, compiled, extrapolated and timed.
LaunchModel launch_model(const Counted& sizes, size_t n, Toolkit& toolkit, const Gpu& gpu, Model& model) {
  const LaunchCounts& last = sizes.back().second[n];
  LaunchModel out;
  out.entry = last.entry, out.threads = static_cast<int>(product_of(last.block));
  out.dynamic_shared = last.dynamic_shared;
  const Result<Machine>& machine = toolkit.machine(last.text, last.symbol, gpu.architecture);
  if (machine) {
    out.compiled = machine->compiled;
    out.occupancy = occupancy(machine->compiled, out.threads, out.dynamic_shared);
    out.sass = machine->sass.has_value(), out.no_sass = machine->no_sass;
  } else {
    out.not_compiled = out.no_sass = machine.error().text();
  }
  std::vector<SizedTotals> totals;
  for (const auto& [elements, launches] : sizes)
    totals.push_back({elements, totals_of_launch(launches[n], machine, &out.unknown)});
  Extrapolated scaled = extrapolated(totals, model.elements);
  out.totals = std::move(scaled.totals);
  if (scaled.departure > model.departure)
    model.departure = scaled.departure, model.departing = out.entry + ": " + scaled.departing;
  out.work = work_of(out);
  out.time = launch_time(out.work, out.occupancy, gpu);
  return out;
}

void sum_up(Model& model) {
  std::map<std::string, double> by_limit;
  by_limit["launches"] =
      kLaunchSeconds + kNextSeconds * static_cast<double>(std::max<size_t>(model.launches.size(), 1) - 1);
  for (const LaunchModel& l : model.launches) by_limit[l.time.limit] += l.time.seconds;
  double most = 0;
  for (const auto& [name, seconds] : by_limit) {
    model.seconds += seconds;
    if (seconds > most) most = seconds, model.limit = name;
  }
  model.copy_seconds = model.least_bytes / model.gpu->copy;
}

std::optional<Error> different_launches(const Counted& sizes) {
  for (const auto& [elements, launches] : sizes) {
    if (launches.empty()) return Error{"nothing was launched", 0, ""};
    bool same = launches.size() == sizes[0].second.size();
    for (size_t n = 0; same && n < launches.size(); ++n)
      same = launches[n].symbol == sizes[0].second[n].symbol;
    if (!same)
      return Error{"the smaller tensors that are counted launch other kernels than each other", 0,
                   "type a line of at most " + std::to_string(kCountedWhole) + " elements"};
  }
  return {};
}

}  // namespace

double LaunchModel::total(std::string_view name) const {
  const auto found = totals.find(name);
  return found == totals.end() ? 0 : found->second;
}

bool Model::sass() const {
  return std::all_of(launches.begin(), launches.end(), [](const LaunchModel& l) { return l.sass; });
}

double Model::instructions_per_element() const {
  double n = 0;
  for (const LaunchModel& l : launches) n += l.work.warp_instructions;
  constexpr double kLanesOfWarp = 32;
  return elements > 0 ? kLanesOfWarp * n / elements : 0;
}

const LaunchModel* Model::longest() const {
  const auto most = std::max_element(launches.begin(), launches.end(), [](const auto& a, const auto& b) {
    return a.time.seconds < b.time.seconds;
  });
  return most == launches.end() ? nullptr : &*most;
}

bool Model::proven() const { return departure <= kMostDeparture; }

bool reads_twice(const Problem& p) {
  for (const Plane& plane : input_planes(p))
    if (plane.name.find("given.") != std::string::npos) return false;
  if (!std::holds_alternative<Quantize>(p.op) && !std::holds_alternative<Split>(p.op)) return false;
  for (const Direction d : kDirections)
    if (const auto& q = p.quantizer(d);
        q && (q->format == FormatId::fp8_current || q->format == FormatId::nvfp4))
      return true;
  return false;
}

double least_bytes(const Problem& p) {
  double n = 0;
  for (const Plane& plane : input_planes(p))
    n += static_cast<double>(plane.bytes()) * (plane.name == "x" && reads_twice(p) ? 2 : 1);
  for (const Plane& plane : output_planes(p)) n += static_cast<double>(plane.bytes());
  return n;
}

namespace {

// The model by the counts of one sample.
Result<Model> model_by(const std::vector<Problem>& lines, const Problem& p, Subject& subject,
                       Subject& reference, Toolkit& toolkit, const ModelOptions& options) {
  Model model;
  model.line = to_line(p), model.subject = subject.argument(), model.gpu = options.gpu;
  model.elements = static_cast<double>(p.x.shape.count());
  model.least_bytes = least_bytes(p), model.two_reads = reads_twice(p);
  model.ptxas = toolkit.ptxas_version(), model.nvdisasm = toolkit.nvdisasm_version();
  Counted sizes;
  for (const Problem& line : lines) {
    auto launches = counted_launches(subject, line, reference, options.environment, options.timeout);
    if (!launches) return Error{to_line(line) + ": " + launches.error().text(), 0, ""};
    sizes.emplace_back(static_cast<double>(line.x.shape.count()), std::move(*launches));
    model.counted_on.push_back(std::to_string(line.x.shape.rows) + "x" + std::to_string(line.x.shape.cols));
  }
  if (const auto error = different_launches(sizes)) return *error;
  for (size_t n = 0; n < sizes[0].second.size(); ++n)
    model.launches.push_back(launch_model(sizes, n, toolkit, *options.gpu, model));
  sum_up(model);
  return model;
}

}  // namespace

Result<Model> model_of(const Problem& p, Subject& subject, Subject& reference, Toolkit& toolkit,
                       const ModelOptions& options) {
  const auto lines = sample_lines(p);
  if (!lines) return lines.error();
  auto model = model_by(*lines, p, subject, reference, toolkit, options);
  if (!model || model->proven() || lines->size() == 1) return model;
  const auto larger = sample_lines(p, Sample::large);
  if (!larger || *larger == *lines) return model;
  return model_by(*larger, p, subject, reference, toolkit, options);
}

}  // namespace assay::model
