// Attention (N20): a step of the core done otherwise, where its line has that step.
#include <string>
#include <utility>

#include "compare/diagnosis/library/rows.h"
#include "contract/attention.h"

namespace assay {

namespace {

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
  void add(const char* id, const char* title, Stage stage, const char* clause, const Change& change) {
    Hypothesis h;
    h.id = std::string("attention.") + id;
    h.title = title;
    h.stage = stage;
    h.clause = clause;
    h.attention = change;
    out_.push_back(std::move(h));
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
    if (op_.kv_heads > 1 && op_.heads != op_.kv_heads)
      add("heads_wrap", "heads of Q read the heads of K and V in turn, not in groups", Stage::input, "N20.1",
          {.heads_wrap = true});
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
    row("v_descale_heads_first", "descales of V are read as [head, sequence]", Change::Descale::heads_first);
    row("v_descale_of_k", "V takes the descales of K", Change::Descale::of_k);
    row("v_descale_of_q", "V takes the descales of Q", Change::Descale::of_q);
  }
  void add_gradients() {
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
