#include <cmath>

#include "compare/model/report.h"

namespace assay::model {

namespace {

// To six digits that mean something: counts of the same kernel print alike on every machine.
double rounded(double v) {
  if (v == 0 || !std::isfinite(v)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(v))) - 5);
  return unit >= 1 ? std::round(v / unit) * unit : std::round(v / unit) / std::round(1 / unit);
}

json::Value ratio_or_null(double part, double whole) {
  return whole > 0 ? json::Value(rounded(part / whole)) : json::Value();
}

json::Value static_json(const LaunchModel& l) {
  if (!l.compiled) return {};
  return json::object({{"registers", l.compiled->registers},
                       {"stack", l.compiled->stack},
                       {"spill_stores", l.compiled->spill_stores},
                       {"spill_loads", l.compiled->spill_loads},
                       {"shared", l.compiled->static_shared + l.dynamic_shared},
                       {"blocks_per_sm", l.occupancy->blocks},
                       {"blocks_limited_by", l.occupancy->limit}});
}

json::Value widths_json(const LaunchModel& l, const std::string& what) {
  json::Value list = json::array();
  double all = 0;
  for (const auto& [name, n] : l.totals)
    if (name.starts_with(what)) all += n;
  for (const auto& [name, n] : l.totals)
    if (name.starts_with(what) && n > 0)
      list.push(json::object({{"bytes", std::stoi(name.substr(what.size()))}, {"share", rounded(n / all)}}));
  return list;
}

json::Value requests_json(const LaunchModel& l, const std::string& what) {
  const std::string name = "global " + what + " ";
  const double requests = l.total(name + "requests");
  return json::object({{"requests", rounded(requests)},
                       {"sectors_per_request", ratio_or_null(l.total(name + "sectors"), requests)},
                       {"lines_per_request", ratio_or_null(l.total(name + "lines"), requests)},
                       {"partial_sectors", rounded(l.total(name + "partial sectors"))},
                       {"widths", widths_json(l, what + "s of ")}});
}

json::Value addresses_json(const LaunchModel& l) {
  return json::object(
      {{"bytes_read", rounded(l.work.bytes_read)},
       {"bytes_written", rounded(l.work.bytes_written)},
       {"load", requests_json(l, "load")},
       {"store", requests_json(l, "store")},
       {"conflicts_per_shared_request",
        ratio_or_null(l.total("shared conflicts"), l.total("shared requests"))},
       {"atomics_per_address", ratio_or_null(l.total("atomic lanes"), l.total("atomic addresses"))}});
}

// Instructions per element: all, and by pipe.
json::Value pipes_json(const LaunchModel& l, const std::string& from, double elements) {
  constexpr double kLanesOfWarp = 32;
  json::Value out = json::object({{"all", ratio_or_null(kLanesOfWarp * l.total(from + "all"), elements)}});
  for (const PipeInfo& pipe : kPipes)
    out.set(pipe.name, ratio_or_null(kLanesOfWarp * l.total(from + std::string(pipe.name)), elements));
  return out;
}

json::Value launch_json(const LaunchModel& l, double elements) {
  json::Value limits = json::array();
  for (const auto& [name, seconds] : l.time.limits)
    limits.push(json::object({{"limit", name}, {"seconds", rounded(seconds)}}));
  json::Value machine;
  if (l.sass) {
    machine = pipes_json(l, "sass ", elements);
    machine.set("local", ratio_or_null(32 * l.total("sass local"), elements));
  }
  return json::object({{"entry", l.entry},
                       {"blocks", rounded(l.total("blocks"))},
                       {"threads", l.threads},
                       {"static", static_json(l)},
                       {"addresses", addresses_json(l)},
                       {"instructions", json::object({{"ptx", pipes_json(l, "ptx ", elements)},
                                                      {"machine", std::move(machine)}})},
                       {"time", json::object({{"seconds", rounded(l.time.seconds)},
                                              {"limit", l.time.limit},
                                              {"limits", std::move(limits)}})}});
}

json::Value texts(const std::vector<std::string>& list) {
  json::Value out = json::array();
  for (const std::string& one : list) out.push(one);
  return out;
}

json::Value text_or_null(const std::string& text) { return text.empty() ? json::Value() : json::Value(text); }

}  // namespace

json::Value to_json(const Model& m) {
  const LaunchModel* longest = m.longest();
  const bool known = longest && longest->compiled;
  double bytes = 0;
  for (const LaunchModel& l : m.launches) bytes += l.work.bytes_read + l.work.bytes_written;
  json::Value launches = json::array();
  for (const LaunchModel& l : m.launches) launches.push(launch_json(l, m.elements));
  return json::object({{"schema", "assay.model/1"},
                       {"note", "a model: nothing was measured"},
                       {"line", m.line},
                       {"subject", m.subject},
                       {"gpu", m.gpu->name},
                       {"share", rounded(m.share())},
                       {"limit", m.limit},
                       {"instructions_per_element", rounded(m.instructions_per_element())},
                       {"registers", known ? json::Value(longest->compiled->registers) : json::Value()},
                       {"blocks_per_sm", known ? json::Value(longest->occupancy->blocks) : json::Value()},
                       {"seconds", rounded(m.seconds)},
                       {"copy_seconds", rounded(m.copy_seconds)},
                       {"elements", m.elements},
                       {"least_bytes", m.least_bytes},
                       {"bytes", rounded(bytes)},
                       {"instructions_of", m.sass() ? "machine" : "ptx"},
                       {"counted_on", texts(m.counted_on)},
                       {"departure", rounded(m.departure)},
                       {"departing", m.departing},
                       {"proven", m.proven()},
                       {"ptxas", text_or_null(m.ptxas)},
                       {"nvdisasm", text_or_null(m.nvdisasm)},
                       {"missing", texts(missing(m))},
                       {"launches", std::move(launches)}});
}

}  // namespace assay::model
