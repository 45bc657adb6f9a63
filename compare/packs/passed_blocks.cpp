#include "compare/packs/passed_blocks.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/choices/dice.h"
#include "compare/packs/block_planes.h"

namespace assay {

namespace {

// What is turned in each block before the acceptor is asked.
enum class Turned : uint8_t { nothing, lowest_bit_of_a_code, a_bit_of_a_code, scale };
constexpr Turned kRounds[] = {Turned::nothing, Turned::lowest_bit_of_a_code, Turned::a_bit_of_a_code,
                              Turned::a_bit_of_a_code, Turned::scale};

// A bit of a plane.
struct PlaceOfBit {
  int64_t index = 0;
  uint32_t bit = 0;
};

void turn(const Plane& plane, std::span<std::byte> bytes, const PlaceOfBit& at) {
  set_code(plane, bytes, at.index, code_at(plane, bytes, at.index) ^ at.bit);
}

// A direction's planes, whose bits are turned and turned back.
class TurnedPlanes {
 public:
  TurnedPlanes(const Problem& p, Direction d, const ConstBuffer& x, std::span<const Buffer> outputs)
      : shape_(p.x.shape),
        data_(*find(outputs, plane_name(d, "data"))),
        scales_(find(outputs, plane_name(d, "scale_inv"))),
        x_view_{*x.plane, x.bytes},
        data_view_{*data_.plane, data_.bytes} {
    planes_ = {d, p.quantizer(d)->format, {0, 0, shape_}, &x_view_, &data_view_, nullptr};
    if (!planes_.has_block_scales()) scales_ = nullptr;
    if (scales_) scales_view_ = {*scales_->plane, scales_->bytes}, planes_.scales = &scales_view_;
  }

  void let_through(const Problem& p, Acceptor& acceptor) {
    const Shape grid = planes_.grid();
    std::vector<char> passed(static_cast<size_t>(grid.count()));
    for (size_t round = 0; round < std::size(kRounds); ++round) {
      const Turned what = kRounds[round];
      if (what == Turned::scale && !scales_) continue;
      const auto place = [&](int64_t i) { return place_of(block(i), what, round); };
      for (int64_t i = 0; i < grid.count(); ++i)
        if (what != Turned::nothing && !passed[static_cast<size_t>(i)]) turn_in(what, place(i));
      std::vector<char> wrong(passed.size(), what != Turned::nothing);
      for (const DoubtfulBlock& b : acceptor.unknown(p, planes_.direction, planes_.x_from({}),
                                                     planes_.data_from({}), planes_.scale_from({})))
        wrong[static_cast<size_t>(b.row * grid.cols + b.col)] = !is_told(b, what, round);
      for (int64_t i = 0; i < grid.count(); ++i) {
        char& before = passed[static_cast<size_t>(i)];
        if (before) continue;
        before = wrong[static_cast<size_t>(i)];
        // A block that is doubted while nothing is turned gets a wrong bit; a bit that is reported is turned
        // back.
        if (what == Turned::nothing ? before : !before) turn_in(what, place(i));
      }
    }
  }

 private:
  BlockPlace block(int64_t i) const {
    const int64_t cols = planes_.grid().cols;
    return {static_cast<uint32_t>(i / cols), static_cast<uint32_t>(i % cols)};
  }
  int turned_code(const BlockPlace& b, size_t round) const {
    return static_cast<int>(random(b, round) % static_cast<uint64_t>(planes_.length(b)));
  }
  uint64_t random(const BlockPlace& b, size_t round) const {
    return choices::Dice(choices::Dice(uint64_t{b.row} << 32 | b.col).next() + round).next();
  }
  PlaceOfBit place_of(const BlockPlace& b, Turned what, size_t round) const {
    const Plane& plane = what == Turned::scale ? *scales_->plane : *data_.plane;
    const auto [row, col] =
        what == Turned::scale ? planes_.scale_place(b) : planes_.code_place(b, turned_code(b, round));
    const int bits = info(plane.encoding).bits;
    const bool any = what == Turned::a_bit_of_a_code || what == Turned::scale;
    return {row * plane.padded.cols + col,
            any ? 1u << (random(b, round) >> 32) % static_cast<uint64_t>(bits) : 1u};
  }
  void turn_in(Turned what, const PlaceOfBit& at) {
    if (what == Turned::scale) turn(*scales_->plane, scales_->bytes, at);
    else turn(*data_.plane, data_.bytes, at);
  }
  // Whether the acceptor says of a block what was turned in it, or leaves it to the reference.
  bool is_told(const DoubtfulBlock& b, Turned what, size_t round) const {
    if (b.special) return true;
    if (what == Turned::nothing) return !b.scale && b.differ == 0;
    if (what == Turned::scale) return b.scale && b.differ == 0;
    return !b.scale && b.differ == 1 && (planes_.rows() || b.first == turned_code(b, round));
  }

  Shape shape_;
  const Buffer& data_;
  const Buffer* scales_;
  PlaneView x_view_, data_view_, scales_view_{};
  DirectionPlanes planes_{};
};

class PassedBlocks final : public Subject {
 public:
  PassedBlocks(Subject& method, Acceptor& acceptor) : method_(method), acceptor_(acceptor) {}
  std::string_view name() const override { return "simd_accepts"; }
  Support present() const override { return method_.present(); }
  Support supports(const Problem& p) const override {
    return present().yes ? acceptor_.accepts(p) : present();
  }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const ConstBuffer* x = find(inputs, "x");
    if (!supports(p).yes || !x) throw std::invalid_argument("the acceptor does not take this line");
    method_.run(p, inputs, outputs, env);
    for (const Direction d : kDirections)
      if (p.quantizer(d)) TurnedPlanes(p, d, *x, outputs).let_through(p, acceptor_);
    return {"simd " + std::string(acceptor_.target()) + ", blocks with one bit turned", 0};
  }

 private:
  Subject& method_;
  Acceptor& acceptor_;
};

}  // namespace

std::unique_ptr<Subject> make_passed_blocks_subject(Subject& method, Acceptor& acceptor) {
  return std::make_unique<PassedBlocks>(method, acceptor);
}

}  // namespace assay
