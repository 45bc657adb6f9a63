// What the search looks at: the planes of each lane as they came and as they should be, samples of bad and good blocks, and how a replay of hypotheses fits them. For diagnose() alone.
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/replay/replay.h"
#include "contract/planes.h"

namespace assay::cause {

using Ids = std::vector<std::string>;    // of hypotheses, in the order in which they act

// Calls body(i) for every i below `count`, on at most `jobs` threads.
template <class Body>
void parallel(int jobs, size_t count, Body body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::jthread> others;
  for (size_t t = 1; t < std::min<size_t>(static_cast<size_t>(std::max(jobs, 1)), count); ++t) others.emplace_back(work);
  work();
}

// The codes of a plane, for loops over all of them.
class Codes {
 public:
  explicit Codes(const PlaneData& data) : Codes(data.plane, data.bytes) {}
  Codes(const Plane& plane, std::span<const std::byte> bytes) : bytes_(bytes.data()), width_(plane.packed ? 0 : info(plane.encoding).bytes()) {}
  uint32_t operator[](int64_t i) const {
    switch (width_) {
      case 0: return std::to_integer<uint32_t>(bytes_[i / 2]) >> (i % 2 * 4) & 15;
      case 1: return std::to_integer<uint32_t>(bytes_[i]);
      case 2: return read<uint16_t>(i);
      default: return read<uint32_t>(i);
    }
  }

 private:
  template <class T>
  uint32_t read(int64_t i) const {
    T code;
    std::memcpy(&code, bytes_ + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return code;
  }
  const std::byte* bytes_;
  int width_;                              // in bytes; 0: two codes in a byte
};

// Calls f(row, column, flat index) for every logical element.
template <class F>
void for_places(const Plane& plane, F f) {
  const bool compact = plane.layout == ScaleLayout::compact && plane.members.empty();
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c) f(r, c, compact ? r * plane.padded.cols + c : index_of(plane, r, c));
}
// Calls f(flat index) likewise.
template <class F>
void for_logical(const Plane& plane, F f) {
  if (plane.logical == plane.padded && plane.layout == ScaleLayout::compact) {
    for (int64_t i = 0; i < plane.logical.count(); ++i) f(i);
  } else {
    for_places(plane, [&](int64_t, int64_t, int64_t i) { f(i); });
  }
}

// One plane of a lane: as it came, as it should be.
struct Judged {
  size_t index = 0;                        // among the lane's output planes
  PlaneData got, want;
  int64_t of = 0, differ = 0;
  bool is_data() const { return want.plane.name.ends_with(".data"); }
  bool is_scalar() const { return want.plane.padded == Shape{1, 1}; }
  std::string stem() const { return want.plane.name.substr(want.plane.name.find('.') + 1); }   // "data", "scale_inv"
  void count();
};

struct LaneState {
  std::deque<Hypothesis> library;
  std::unordered_map<std::string, const Hypothesis*> by_id;
  std::unique_ptr<Replay> replay;
  std::vector<Judged> judged;              // the planes that came
  const Lane& lane() const { return replay->lane(); }
  bool differs() const;
  const Judged* find(std::string_view stem) const;
  // The row of this id, which is looked up by name and kept where the library has none; nothing where there is none for this lane.
  const Hypothesis* row(const std::string& id, const std::string& title = "");
  std::optional<std::vector<const Hypothesis*>> rows(const Ids& ids) const;
};

// How a replay fits what came.
struct Fit {
  int64_t of = 0, agree = 0, differ = 0, repaired = 0, changed = 0;   // changed: from what is wanted
  double loss = 0;                         // over planes: the share that does not agree
  bool scales_agree = true, data_agrees = true;   // every plane but the data; the data
  bool applies = false;
  bool exact() const { return applies && agree == of; }
  Fit& operator+=(const Fit& o);
};

// Places of a lane, with the codes that came there and that should be there.
struct Sample {
  const LaneState* lane = nullptr;
  Selection selection;
  struct Part {
    size_t plane = 0;                      // among the replay's planes
    bool data = false;
    std::vector<int64_t> at;               // in the replay's plane
    std::vector<uint32_t> got, want;
  };
  std::vector<Part> parts;
  size_t elements() const;
};
// About so many elements of bad and good blocks; of a lane that no part can stand for, everything. Draws count from the first line: there it is the lines up to the first bad one, or with
// `leading` only so many.
std::optional<Sample> sample_of(const LaneState& lane, int64_t elements, bool leading = false);
Fit fit_sample(const Sample& sample, const Ids& ids);
Fit fit_whole(const LaneState& lane, const Ids& ids);

// A cause that may be it.
struct Candidate {
  Ids ids;
  Fit sample, whole;
};

// One case, ready to be searched.
class Evidence {
 public:
  Evidence(const Observation& seen, Subject& reference, const DiagnoseOptions& options);
  // Runs the reference and finds what differs. Errors: as diagnose() says.
  std::optional<Error> gather();

  const Observation& seen;
  Subject& reference;
  const DiagnoseOptions& options;
  const int jobs;
  std::deque<LaneState> lanes;
  std::vector<std::pair<PlaneData, PlaneData>> beside;   // planes of no lane that differ: got, want
  int64_t beside_of = 0, beside_differ = 0;

  std::vector<LaneState*> lanes_of(std::optional<Direction> d, bool differing);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool in_time() const { return elapsed() < options.budget; }   // a last resort: what is tried is bounded by counts
  void progress(const std::string& text) const {
    if (options.on_progress) options.on_progress(text);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void add_rows(LaneState& lane) const;
  std::optional<Error> judge_beside();
  Clock::time_point start_ = Clock::now();
};

}  // namespace assay::cause
