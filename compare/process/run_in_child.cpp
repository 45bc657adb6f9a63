#include "compare/process/run_in_child.h"

#include <algorithm>
#include <cstring>

#include "compare/process/answer.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "fixtures/json.h"

namespace assay {

namespace {

// What crosses the pipe: a JSON header, a line end, then the planes' bytes in order.
std::string pack_run(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs,
                     const Environment& environment) {
  const Support support = subject.supports(problem);
  if (!support.yes) return json::dump(json::object({{"unsupported", support.why}})) + "\n";
  const Execution run = execute(subject, problem, inputs, environment);
  if (run.unsupported) return json::dump(json::object({{"unsupported", *run.error}})) + "\n";
  json::Value head =
      json::object({{"by", run.served.by}, {"launches", run.served.launches}, {"seconds", run.seconds}});
  if (run.error) head.set("error", *run.error);
  if (run.trespass) head.set("trespass", *run.trespass);
  std::string text = json::dump(head) + "\n";
  for (const PlaneData& p : run.planes)
    text.append(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size());
  return text;
}

}  // namespace

std::string IsolatedRun::trouble() const {
  if (status == Status::unsupported) return "unsupported: " + why;
  if (status == Status::crashed) return "crashed: " + why;
  if (status == Status::interrupted) return "interrupted";
  if (execution.error) return *execution.error;
  return execution.trespass.value_or("");
}

IsolatedRun run_isolated(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs,
                         const Environment& environment, double timeout) {
  IsolatedRun out;
  const auto text = in_child([&] { return pack_run(subject, problem, inputs, environment); }, timeout);
  auto crashed = [&](std::string why) {
    out.status = IsolatedRun::Status::crashed;
    out.why = std::move(why);
    return out;
  };
  if (!text && interrupted()) {
    out.status = IsolatedRun::Status::interrupted;
    return out;
  }
  if (!text) return crashed(text.error().text());
  const size_t end = text->find('\n');
  const auto head = end == std::string::npos ? Result<json::Value>(Error{"no answer", 0, ""})
                                             : json::parse(std::string_view(*text).substr(0, end));
  if (!head) return crashed("the child's answer cannot be read: " + head.error().text());
  if (head->find("unsupported")) {
    out.status = IsolatedRun::Status::unsupported;
    out.why = head->text("unsupported");
    return out;
  }
  Answer said(*head);
  out.execution.served = {said.text("by"), static_cast<int>(said.count("launches"))};
  out.execution.seconds = said.seconds("seconds");
  if (!said.whole()) return crashed("the child's answer cannot be read");
  if (head->find("error")) out.execution.error = head->text("error");
  if (head->find("trespass")) out.execution.trespass = head->text("trespass");
  size_t at = end + 1;
  for (Plane& plane : output_planes(problem)) {
    PlaneData data{std::move(plane), {}};
    const size_t bytes = data.plane.bytes();
    if (text->size() - at < bytes) {  // a subject that failed before its outputs were made
      if (out.execution.error) return out;
      return crashed("the child's answer is cut short");
    }
    data.bytes.resize(bytes);
    if (bytes) std::memcpy(data.bytes.data(), text->data() + at, bytes);
    at += bytes;
    out.execution.planes.push_back(std::move(data));
  }
  return out;
}

Result<std::vector<PlaneData>> inputs_with(const Problem& problem, const std::vector<PlaneData>& given,
                                           Subject& reference) {
  const std::vector<Plane> needed = input_planes(problem);
  std::vector<PlaneData> out;
  for (const Plane& plane : needed)
    if (const PlaneData* data = find_plane(given, plane.name)) out.push_back(*data);
  if (out.size() == needed.size()) return out;
  Problem keys = problem;
  if (find_plane(given, "x")) {
    keys.x.fill = Fill{};
    keys.x.fill.kind = FillKind::zeros;
  }
  auto inputs = make_inputs(keys, reference);
  if (!inputs) return inputs.error();
  for (PlaneData& input : *inputs)
    if (const PlaneData* data = find_plane(given, input.plane.name)) input.bytes = data->bytes;
  return inputs;
}

}  // namespace assay
