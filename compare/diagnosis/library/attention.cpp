// Attention (N20): a step of the core done otherwise, where its line has that step.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"
#include "contract/attention.h"
#include "contract/f32_text.h"

namespace assay {

namespace {

using std::string;
using Change = AttentionChange;

class AttentionRows {
 public:
  explicit AttentionRows(const Problem& p) : p_(p), op_(*p.as<Attention>()) {}
  std::vector<Hypothesis> list() {
    add_casts();
    add_core();
    add_descales();
    if (op_.backward) add_gradients();
    return std::move(out_);
  }

 private:
  Hypothesis& add(const char* id, const char* title, Stage stage, const char* clause, const Change& change) {
    Hypothesis h;
    h.id = string("attention.") + id;
    h.title = title;
    h.stage = stage;
    h.clause = clause;
    if (change != Change{}) h.attention = change;
    out_.push_back(std::move(h));
    return out_.back();
  }
  bool fp8(AttentionSlot slot) const { return info(op_.slot(slot).format).per_tensor_fp8(); }

  void add_casts() {
    if (!fp8(AttentionSlot::s)) return;
    add("s_not_descaled", "the scale of S is forgotten: its codes are multiplied with V as they are",
        Stage::tensor_scale, "N20.3", {.s_not_descaled = true});
    add("s_not_scaled", "the scale of S is forgotten in its cast, and undone all the same",
        Stage::tensor_scale, "N20.3", {.s_not_scaled = true});
    add("unnormalised",
        "exponentials are cast before they are divided by their sum, and O is divided instead", Stage::code,
        "N20.7", {.normalised = Change::Normalised::after_product});
    add("unnormalised_rounded",
        "exponentials are rounded to n and cast before they are divided by their sum, and O is divided "
        "instead",
        Stage::code, "N20.7", {.normalised = Change::Normalised::after_product_rounded});
  }
  void add_core() {
    if (op_.mask != AttentionMask::none || op_.window_right >= 0) {
      add("mask_hides_own", "the mask is off by one: it hides the last key that a query sees", Stage::input,
          "N20.6", {.mask_shift = -1});
      add("mask_shows_next", "the mask is off by one: it shows the key after the last one", Stage::input,
          "N20.6", {.mask_shift = 1});
    }
    add("scale_twice", "the softmax scale multiplies twice", Stage::scaled_value, "N20.4",
        {.scale_times = 2});
    add("scale_missing", "the softmax scale is left out", Stage::scaled_value, "N20.4", {.scale_times = 0});
    add_softmax_scales();
    add_windows();
    add_heads();
    add_lengths();
    const bool may_see_none = op_.mask != AttentionMask::none || op_.window_left >= 0 ||
                              op_.window_right >= 0 || !op_.lengths.empty() || attention_sizes(p_).kv == 0;
    if (may_see_none) {
      add("unseeing_nan", "a query that sees no key has probabilities of NaN", Stage::code, "N20.6",
          {.unseeing = Change::Unseeing::nan});
      add("unseeing_zero", "a query that sees no key has probabilities of 0", Stage::code, "N20.6",
          {.unseeing = Change::Unseeing::zero});
    }
  }
  // Heads of Q that read another head of K and V than their own.
  void add_heads() {
    const int64_t heads = op_.heads, kv = op_.kv_heads, repeats = heads / kv;
    if (kv < 2) return;
    std::vector<std::vector<int64_t>> known;
    const auto row = [&](const string& id, const string& title, const std::function<int64_t(int64_t)>& read) {
      std::vector<int64_t> of;
      bool changes = false;
      for (int64_t h = 0; h < heads; ++h) of.push_back(read(h)), changes |= of.back() != h / repeats;
      if (!changes || std::find(known.begin(), known.end(), of) != known.end()) return;
      known.push_back(of);
      add(id.c_str(), title.c_str(), Stage::input, "N20.1", {.kv_head_of = std::move(of)});
    };
    row("heads_wrap", "heads of Q read the heads of K and V in turn, not in groups",
        [&](int64_t h) { return h % kv; });
    for (const int64_t tile : {2, 4, 8, 16}) {
      if (tile >= heads) break;  // one tile has all heads: they read the first one
      row(fmt::format("heads_by_tiles={}", tile),
          fmt::format("tiles of {} heads of Q all read the head of K and V that belongs to the tile's first "
                      "head, also where a tile reaches into the next group",
                      tile),
          [&, tile](int64_t h) { return h / tile * tile / repeats; });
    }
    row("heads_first", "every head of Q reads the first head of K and V", [](int64_t) { return 0; });
    row("heads_reversed", "heads of Q read the heads of K and V from the last one on",
        [&](int64_t h) { return kv - 1 - h / repeats; });
    row("heads_next", "heads of Q read the head of K and V after their own",
        [&](int64_t h) { return (h / repeats + 1) % kv; });
    row("heads_ungrouped", "head h of Q reads head h of K and V, up to the last one",
        [&](int64_t h) { return std::min(h, kv - 1); });
  }
  // Lengths of the key sequences that are taken from elsewhere.
  void add_lengths() {
    const AttentionSizes n = attention_sizes(p_);
    const auto row = [&](const char* id, const char* title, const std::function<int64_t(size_t)>& length) {
      string list;
      for (size_t b = 0; b < op_.kv_lengths.size(); ++b)
        list += (b ? "," : "") + std::to_string(std::min(length(b), n.kv));
      add_keys(id, title, "N20.6", "kv_lengths=" + list);
    };
    if (op_.lengths.empty() || op_.lengths.size() != op_.kv_lengths.size()) return;
    row("lengths_of_queries", "the lengths of the key sequences are those of the query sequences",
        [&](size_t b) { return op_.lengths[b]; });
    row("lengths_full", "lengths of key sequences are left out: keys that only fill up a sequence count too",
        [&](size_t) { return n.kv; });
    row("lengths_of_next", "a key sequence has the length of the next one",
        [&](size_t b) { return op_.kv_lengths[(b + 1) % op_.kv_lengths.size()]; });
  }
  void add_keys(const string& id, const string& title, const char* clause, const string& keys) {
    if (with_keys(p_, keys)) add(id.c_str(), title.c_str(), Stage::input, clause, {}).keys = keys;
  }
  // Sides of the window, and the corner of a mask of padded sequences.
  void add_windows() {
    const int64_t left = op_.window_left, right = op_.window_right;
    const auto window = [](int64_t l, int64_t r) { return fmt::format("window={},{}", l, r); };
    if (left >= 0)
      add_keys("window_left_more", "a query sees one key more before its own than the window says", "N20.6",
               window(left + 1, right));
    if (left > 0)
      add_keys("window_left_less", "a query sees one key less before its own than the window says", "N20.6",
               window(left - 1, right));
    if (left >= 0 && right >= 0 && left != right)
      add_keys("window_turned", "the sides of the window have changed places", "N20.6", window(right, left));
    const int64_t shift = attention_sizes(p_).kv - attention_sizes(p_).q;
    if (op_.mask == AttentionMask::causal_bottom_right && !op_.lengths.empty() && shift >= 0 &&
        (left < 0 || left >= shift))
      add_keys("corner_padded",
               "the bottom right corner of the mask is that of the padded sequences, not of each sequence",
               "N20.6", "mask=none " + window(left < 0 ? left : left - shift, shift));
  }
  // The mask of the gradients is another one than that of the logits.
  void add_dropout(int64_t moved) {
    const string title =
        moved ? fmt::format("the gradients take a dropout mask that is drawn {} numbers later", moved)
              : string("the gradients take no dropout mask");
    Hypothesis& h = add(moved ? fmt::format("dropout_moved={}", moved).c_str() : "dropout_missing",
                        title.c_str(), Stage::input, "N20.10", {});
    h.rerun = [moved](const Problem& p, const std::vector<PlaneData>& inputs,
                      const RunLine& run) -> std::optional<std::vector<PlaneData>> {
      std::vector<PlaneData> other = inputs;
      for (PlaneData& plane : other) {
        if (plane.plane.name != "keep") continue;
        const auto by = std::min(static_cast<size_t>(moved), plane.bytes.size());
        std::rotate(plane.bytes.begin(), plane.bytes.begin() + static_cast<std::ptrdiff_t>(by),
                    plane.bytes.end());
        if (!moved) std::fill(plane.bytes.begin(), plane.bytes.end(), std::byte{1});
      }
      auto made = run(p, inputs);
      const auto backward = run(p, other);
      if (!made || !backward) return {};
      bool gradients = false;
      for (size_t i = 0; i < made->size(); ++i) {
        if (gradients) (*made)[i].bytes = (*backward)[i].bytes;
        gradients |= (*made)[i].plane.name == "out";
      }
      return made;
    };
  }
  // Other numbers for the softmax scale.
  void add_softmax_scales() {
    const auto size = static_cast<double>(attention_sizes(p_).depth);
    const double own = op_.softmax_scale ? value_of(Encoding::f32, *op_.softmax_scale) : 1 / std::sqrt(size);
    const auto row = [&](const string& id, const string& title, double scale) {
      if (f32_of(scale) == f32_of(own)) return;
      add(id.c_str(), title.c_str(), Stage::scaled_value, "N20.4", {}).keys =
          "softmax_scale=" + f32_text(static_cast<F32Bits>(nearest_code(Encoding::f32, scale)));
    };
    row("scale_default", "the softmax scale is 1 / sqrt(size of a head), whatever is given",
        1 / std::sqrt(size));
    if (op_.softmax_scale) return;
    row("scale_of_all_heads", "the softmax scale is that of all heads as one: 1 / sqrt(columns of Q)",
        1 / std::sqrt(static_cast<double>(p_.x.shape.cols)));
    if (own * own != 1 / size)  // else it is scale_twice, to the bit
      row("scale_unrooted", "the softmax scale is 1 / (size of a head), without the root", 1 / size);
    row("scale_inverted", "the softmax scale is sqrt(size of a head), not 1 over it", std::sqrt(size));
    row("scale_by_log2e", "the softmax scale is multiplied by log2(e), and exp is still that of e",
        own * std::numbers::log2e);
    row("scale_by_ln2", "the softmax scale lacks a factor log2(e), and exp is that of 2",
        own * std::numbers::ln2);
    for (const int64_t unit : {8, 16, 32, 64, 128})
      if (attention_sizes(p_).depth % unit != 0)
        row(fmt::format("scale_padded={}", unit),
            fmt::format("the softmax scale is that of a head padded to a multiple of {}", unit),
            1 / std::sqrt(static_cast<double>(round_up(attention_sizes(p_).depth, unit))));
  }
  void add_descales() {
    if (op_.codes == AttentionCodes::none) return;
    const auto row = [&](const char* id, const char* title, Change::Descale descale) {
      add(id, title, Stage::tensor_scale, "N20.17", {.v_descale = descale});
    };
    row("v_descale_next", "a head of V takes the next head's descale", Change::Descale::next_head);
    row("v_descale_reversed", "heads of V take each other's descales, from the last one",
        Change::Descale::reversed_heads);
    row("v_descale_first", "every head of V takes the first head's descale", Change::Descale::first_head);
    row("v_descale_one", "the first descale of V serves all of its sequences and heads",
        Change::Descale::first);
    row("v_descale_heads_first", "descales of V are read as [head, sequence]", Change::Descale::heads_first);
    row("v_descale_of_k", "V takes the descales of K", Change::Descale::of_k);
    row("v_descale_of_q", "V takes the descales of Q", Change::Descale::of_q);
  }
  void add_gradients() {
    if (op_.dropout != 0)
      for (const int64_t moved : {0, 1, 4, 16}) add_dropout(moved);
    if (fp8(AttentionSlot::d_o) && fp8(AttentionSlot::o))
      add("do_by_o", "dO is cast with the scale of O", Stage::tensor_scale, "N20.3", {.do_by_o = true});
    add("ds_for_dp", "the gradient of S stands for the gradient of the logits", Stage::code, "N20.14",
        {.logit_gradient = Change::LogitGradient::ds});
    if (op_.mask != AttentionMask::none || op_.window_left >= 0 || op_.window_right >= 0 ||
        !op_.lengths.empty())
      add("ds_for_dp_masked",
          "the gradient of S stands for the gradient of the logits, with zeros at masked keys", Stage::code,
          "N20.14", {.logit_gradient = Change::LogitGradient::ds_masked});
  }

  const Problem& p_;
  const Attention& op_;
  std::vector<Hypothesis> out_;
};

}  // namespace

std::vector<Hypothesis> attention_hypotheses(const Problem& problem) {
  return problem.as<Attention>() ? AttentionRows(problem).list() : std::vector<Hypothesis>{};
}

}  // namespace assay
