#include "compare/commands/certify/task.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "compare/commands/certify/failure.h"
#include "compare/judge/verdict.h"
#include "compare/process/answer.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr uint8_t kReferencePoison =
    0x80;  // not that of any side, so that a byte that no subject writes differs

// Tells results apart and protects nothing: eight streams of 64-bit words, each multiplied and mixed. Two
// results that differ in one word have different digests.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    size_t at = 0;
    for (; at + sizeof state_ <= bytes.size(); at += sizeof state_) mix(bytes.data() + at);
    std::array<std::byte, sizeof state_> rest{};
    std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), rest.begin());
    rest.back() ^= static_cast<std::byte>(bytes.size() - at);
    mix(rest.data());
  }
  // 32 hex digits.
  std::string text() const { return sha256(std::as_bytes(std::span(state_))).substr(0, 32); }

 private:
  void mix(const std::byte* block) {
    for (size_t lane = 0; lane < state_.size(); ++lane) {
      uint64_t word;
      std::memcpy(&word, block + 8 * lane, 8);
      const uint64_t h = (state_[lane] ^ word) * 0x9E3779B97F4A7C15;
      state_[lane] = h ^ h >> 29;
    }
  }
  std::array<uint64_t, 8> state_{1, 2, 3, 4, 5, 6, 7, 8};
};

std::vector<PlaneData> empty_outputs(const Problem& problem) {
  std::vector<PlaneData> out;
  for (Plane& plane : output_planes(problem)) {
    const size_t bytes = plane.bytes();
    out.push_back({std::move(plane), std::vector<std::byte>(bytes)});
  }
  return out;
}

// The planes of a piece of n elements. Pieces of one size share them: thousands of runs make one allocation.
Result<CertifyPiece> make_piece(const CertifyPart& part, int64_t n, Subject& reference) {
  Problem zeros = part.sized(n);
  zeros.x.fill.kind = FillKind::zeros;
  Result<std::vector<PlaneData>> inputs = make_inputs(zeros, reference);
  if (!inputs) return inputs.error();
  CertifyPiece piece{part.sized(n), 0, n, std::move(*inputs), {}, {}};
  piece.want = empty_outputs(piece.problem);
  piece.got = piece.want;
  return piece;
}

// Of the bytes of all planes, one after another.
std::string sha256_of(const std::vector<PlaneData>& planes) {
  if (planes.size() == 1) return sha256(planes[0].bytes);
  std::vector<std::byte> all;
  for (const PlaneData& p : planes) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
  return sha256(all);
}

// Writes the outputs. Returns what the subject threw, or an empty string.
std::string run_piece(const CertifyPiece& piece, Subject& subject, const Environment& environment,
                      std::vector<PlaneData>& outputs) {
  std::vector<Buffer> to;
  for (PlaneData& p : outputs) {
    std::fill(p.bytes.begin(), p.bytes.end(), std::byte{environment.poison});
    to.push_back({&p.plane, p.bytes});
  }
  try {
    subject.run(piece.problem, views(piece.inputs), to, environment);
  } catch (const std::exception& e) {
    return fmt::format("threw: {}", e.what());
  } catch (...) {
    return "threw a non-standard exception";
  }
  return {};
}

// One claim on one piece, whose reference has run.
void judge_side(const CertifyPart& part, const CertifySide& side, CertifyPiece& piece,
                const Subjects& subjects, SideResult& result) {
  const std::string threw = run_piece(piece, *subjects.find(side.subject), side.environment, piece.got);
  if (threw.empty() && same_bytes(piece.got, piece.want)) return;
  const PieceDifference d = threw.empty() ? difference_of(part, side, piece)
                                          : PieceDifference{1, 0, fmt::format("  cause    {}\n", threw)};
  result.differ += d.differ;
  if (result.failure.is_null()) result.failure = failure_of(part, side, piece, d, subjects);
}

// Whether a failure is null, a text, or a line with a verdict that can be read.
bool is_failure(const json::Value& failure) {
  if (failure.is_null()) return true;
  if (!failure.find("line")) return failure.find("text") && failure.find("text")->string();
  const json::Value* verdict = failure.find("verdict");
  return failure.find("line")->string() && verdict && verdict_from_json(*verdict);
}

TaskResult unreadable() {
  TaskResult r;
  r.trouble = "the worker's answer cannot be read";
  return r;
}

}  // namespace

int64_t certify_task(int64_t inputs_of_part, int64_t piece) {
  constexpr int64_t kTasks = 64, kMostPieces = 16;
  return std::clamp(inputs_of_part / kTasks / piece * piece, piece, kMostPieces * piece);
}

TaskResult run_task(const CertifyPart& part, const std::vector<CertifySide>& sides, int64_t first,
                    int64_t end, const Subjects& subjects) {
  const auto start = std::chrono::steady_clock::now();
  TaskResult out;
  out.sides.resize(sides.size());
  std::optional<CertifyPiece> piece;
  for (int64_t at = first; at < end; at += piece->count) {
    const int64_t n = std::min(part.piece, end - at);
    if (!piece || n != piece->count) {
      Result<CertifyPiece> made = make_piece(part, n, subjects.reference());
      if (!made) {
        out.trouble = made.error().text();
        break;
      }
      piece = std::move(*made);
    }
    piece->first = at;
    part.domain.fill(at, n, piece->inputs);
    out.trouble = run_piece(*piece, subjects.reference(), {.poison = kReferencePoison}, piece->want);
    if (!out.trouble.empty()) break;
    Digest digest;
    for (const PlaneData& p : piece->want) digest.add(p.bytes);
    out.digests += digest.text();
    if (part.sha256) out.hashes += sha256_of(piece->want);
    if (part.law && out.law.empty()) out.law = part.law(piece->inputs, piece->want);
    for (size_t i = 0; i < sides.size(); ++i) judge_side(part, sides[i], *piece, subjects, out.sides[i]);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::string to_text(const TaskResult& r) {
  json::Value sides = json::array();
  for (const SideResult& s : r.sides)
    sides.push(json::object({{"differ", s.differ}, {"failure", s.failure}}));
  return json::dump(json::object({{"digests", r.digests},
                                  {"hashes", r.hashes},
                                  {"sides", std::move(sides)},
                                  {"law", r.law},
                                  {"trouble", r.trouble},
                                  {"seconds", r.seconds}}));
}

TaskResult task_from(const std::string& text, size_t sides) {
  const Result<json::Value> v = json::parse(text);
  if (!v) return unreadable();
  Answer said(*v);
  TaskResult r;
  r.digests = said.text("digests");
  r.hashes = said.text("hashes");
  r.law = said.text("law");
  r.trouble = said.text("trouble");
  r.seconds = said.seconds("seconds");
  bool whole = true;
  for (const json::Value& s : said.list("sides")) {
    Answer side(s);
    r.sides.push_back({side.count("differ"), side.member("failure")});
    whole = whole && side.whole() && is_failure(r.sides.back().failure);
  }
  const bool all_sides = r.sides.size() == sides || (r.sides.empty() && !r.trouble.empty());
  return said.whole() && whole && all_sides ? r : unreadable();
}

}  // namespace assay
