#include "tests/self/hunt/third_call.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/subject.h"

namespace assay::third {

namespace {

template <class B> const B& named(std::span<const B> buffers, std::string_view name) {
  if (const B* b = find(buffers, name)) return *b;
  throw std::invalid_argument("no plane " + std::string(name));
}

void reference(const Problem& problem, std::span<const ConstBuffer> in, std::span<const Buffer> out) {
  Environment alone;
  alone.threads = 1;
  make_reference_subject()->run(problem, in, out, alone);
}

}  // namespace

bool Call::has_output(std::string_view name) const { return find(outputs, name) != nullptr; }
const ConstBuffer& Call::input(std::string_view name) const { return named(inputs, name); }
const Buffer& Call::output(std::string_view name) const { return named(outputs, name); }
void Call::right() const { reference(problem, inputs, outputs); }
void Call::right_for(const Problem& other) const { reference(other, inputs, outputs); }

Rerun::Rerun(Problem problem, const Call& call) : problem_(std::move(problem)) {
  // The numerics of a flavour are resolved already, and another line may be none of that flavour.
  problem_.flavour = Flavour::assay;
  problem_.dispatch = Dispatch::automatic;
  problem_.arch = Arch::sm100;
  in_ = input_planes(problem_);
  out_ = output_planes(problem_);
  for (const Plane& plane : in_) {
    std::vector<std::byte>& bytes = in_bytes_.emplace_back(plane.bytes());
    const ConstBuffer* given = find(call.inputs, plane.name);
    if (given && given->bytes.size() == bytes.size())
      std::copy(given->bytes.begin(), given->bytes.end(), bytes.begin());
  }
  for (const Plane& plane : out_) out_bytes_.emplace_back(plane.bytes());
  for (size_t i = 0; i < out_.size(); ++i) outputs_.push_back({&out_[i], out_bytes_[i]});
}

bool Rerun::has_input(std::string_view name) const {
  return std::any_of(in_.begin(), in_.end(), [&](const Plane& p) { return p.name == name; });
}

Buffer Rerun::input(std::string_view name) {
  for (size_t i = 0; i < in_.size(); ++i)
    if (in_[i].name == name) return {&in_[i], in_bytes_[i]};
  throw std::invalid_argument("no input " + std::string(name));
}

void Rerun::run() {
  std::vector<ConstBuffer> inputs;
  for (size_t i = 0; i < in_.size(); ++i) inputs.push_back({&in_[i], in_bytes_[i]});
  reference(problem_, inputs, outputs_);
}

const Buffer& Rerun::output(std::string_view name) const {
  return named(std::span<const Buffer>(outputs_), name);
}

void Rerun::give(std::string_view output_name, const Call& call, std::string_view to) const {
  const Buffer &from = output(output_name), &into = call.output(to);
  if (from.bytes.size() != into.bytes.size()) throw std::invalid_argument("sizes of " + std::string(to));
  std::copy(from.bytes.begin(), from.bytes.end(), into.bytes.begin());
}

}  // namespace assay::third
