#include <algorithm>

#include <fmt/format.h>

#include "compare/model/report.h"

namespace assay::model {

namespace {

// ".93"; "under .01".
std::string share_text(double share) {
  if (share >= 0.995) return fmt::format("{:.2f}", share);
  return share < 0.01 ? "under .01" : fmt::format("{:.2f}", share).substr(1);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string static_text(const LaunchModel& l) {
  if (!l.compiled) return "not known: " + l.not_compiled;
  const Compiled& c = *l.compiled;
  return fmt::format(
      "{} registers, room for {} block{} of {} threads on an SM ({} allow no more), {} B of stack, {} B "
      "spilled, "
      "{} B of shared memory",
      c.registers, l.occupancy->blocks, l.occupancy->blocks == 1 ? "" : "s", l.threads, l.occupancy->limit,
      c.stack, c.spill_stores + c.spill_loads, c.static_shared + l.dynamic_shared);
}

// "loads of 16 B 90 %, of 1 B 10 %".
std::string widths(const LaunchModel& l, const std::string& what) {
  std::vector<std::pair<int, double>> found;
  double all = 0;
  for (const auto& [name, n] : l.totals)
    if (name.starts_with(what + " of ") && n > 0)
      found.emplace_back(std::stoi(name.substr(what.size() + 4)), n), all += n;
  std::sort(found.rbegin(), found.rend());
  std::string out;
  for (const auto& [bytes, n] : found)
    out += fmt::format("{} of {} B {:.0f} %", out.empty() ? what : ",", bytes, 100 * n / all);
  return out;
}

std::string address_text(const LaunchModel& l) {
  std::string out =
      fmt::format("reads {:.4g} MB, writes {:.4g} MB", l.work.bytes_read / 1e6, l.work.bytes_written / 1e6);
  for (const std::string what : {"load", "store"}) {
    const std::string name = "global " + what + " ";
    const double requests = l.total(name + "requests");
    if (requests < 1) continue;
    out += fmt::format("; a {} touches {:.2f} sectors in {:.2f} lines, {:.1f} % of the sectors in part", what,
                       ratio(l.total(name + "sectors"), requests), ratio(l.total(name + "lines"), requests),
                       100 * ratio(l.total(name + "partial sectors"), l.total(name + "sectors")));
  }
  if (l.total("shared requests") > 0)
    out += fmt::format("; {:.3f} bank conflicts per request of shared memory",
                       ratio(l.total("shared conflicts"), l.total("shared requests")));
  if (l.total("atomic lanes") > 0)
    out += fmt::format("; {:.4g} atomics on {:.4g} addresses", l.total("atomic lanes"),
                       l.total("atomic addresses"));
  return out;
}

std::string instruction_text(const LaunchModel& l, double elements) {
  std::string out;
  const auto each = [&](double warps) { return ratio(32 * warps, elements); };
  for (const PipeInfo& pipe : kPipes)
    if (const double n = each(l.work.by_pipe[static_cast<size_t>(pipe.pipe)]); n >= 0.005)
      out += fmt::format("{}{} {:.2f}", out.empty() ? "" : ", ", pipe.name, n);
  out = fmt::format("{:.2f} {} instructions: ", each(l.work.warp_instructions), l.sass ? "machine" : "PTX") +
        (out.empty() ? "next to none" : out);
  if (l.sass && l.total("sass local") > 0)
    out += fmt::format("; {:.2f} of them reach local memory", each(l.total("sass local")));
  for (const std::string& opcode : l.unknown) out += "; the pipe of " + opcode + " is not known";
  return out;
}

std::string time_text(const LaunchModel& l) {
  std::string out = fmt::format("{:.1f} us, {} binds:", 1e6 * l.time.seconds, l.time.limit);
  for (const auto& [name, seconds] : l.time.limits)
    if (seconds > 0.02 * l.time.seconds) out += fmt::format(" {} {:.1f}", name, 1e6 * seconds);
  return out;
}

}  // namespace

std::vector<std::string> missing(const Model& m) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& why) {
    if (!why.empty() && std::find(out.begin(), out.end(), why) == out.end()) out.push_back(why);
  };
  for (const LaunchModel& l : m.launches) add(l.not_compiled), add(l.no_sass);
  return out;
}

std::string to_text(const Model& m) {
  std::string out = fmt::format(
      "model    {} on {}\n  verdict  {} of a copy of the same bytes; {} binds. This is a model: nothing was "
      "measured\n",
      m.line, m.gpu->title, share_text(m.share()), m.limit == "launches" ? "the start of launches" : m.limit);
  out += fmt::format("  T        {:.1f} us; a copy of the {:.4g} MB that must move{} takes {:.1f} us\n",
                     1e6 * m.seconds, m.least_bytes / 1e6, m.two_reads ? " (x twice: its amax first)" : "",
                     1e6 * m.copy_seconds);
  double bytes = 0;
  for (const LaunchModel& l : m.launches) bytes += l.work.bytes_read + l.work.bytes_written;
  out += fmt::format("  A        {:.3f} of the bytes that must move; {} launch{}\n",
                     ratio(bytes, m.least_bytes), m.launches.size(), m.launches.size() == 1 ? "" : "es");
  out += fmt::format("  I        {:.2f} {} instructions per element\n", m.instructions_per_element(),
                     m.sass() ? "machine" : "PTX");
  std::string shapes;
  for (const std::string& shape : m.counted_on) shapes += (shapes.empty() ? "" : ", ") + shape;
  out += "  counted  on " + shapes;
  if (m.counted_on.size() > 1)
    out += m.proven() ? fmt::format(", straight within {:.2f} %", 100 * m.departure)
                      : fmt::format(", NOT PROVEN: {} departs from a straight line by {:.1f} %", m.departing,
                                    100 * m.departure);
  out += "\n";
  for (const std::string& why : missing(m)) out += "  missing  " + why + "\n";
  for (const LaunchModel& l : m.launches) {
    out += fmt::format("\n{}  {:.0f} block{} of {} thread{}\n", l.entry, l.total("blocks"),
                       l.total("blocks") == 1 ? "" : "s", l.threads, l.threads == 1 ? "" : "s");
    out += "  S  " + static_text(l) + "\n";
    for (const char* what : {"loads", "stores"})
      if (const std::string text = widths(l, what); !text.empty()) out += "     " + text + "\n";
    out += "  A  " + address_text(l) + "\n  I  " + instruction_text(l, m.elements) + " per element\n  T  " +
           time_text(l) + "\n";
  }
  return out;
}

std::string table_header() {
  return fmt::format("{:>9} {:>10} {:>9} {:>8} {:>9} {:>9}  {}\n", "share", "limit", "us", "instr/el",
                     "registers", "blocks/SM", "line");
}

std::string to_row(const Model& m) {
  const LaunchModel* l = m.longest();
  const bool known = l && l->compiled;
  return fmt::format("{:>9} {:>10} {:>9.1f} {:>8.2f} {:>9} {:>9}  {}{}\n", share_text(m.share()), m.limit,
                     1e6 * m.seconds, m.instructions_per_element(),
                     known ? std::to_string(l->compiled->registers) : "-",
                     known ? std::to_string(l->occupancy->blocks) : "-", m.line,
                     m.proven() ? "" : "   NOT PROVEN: " + m.departing);
}

}  // namespace assay::model
